/* lanes.h: sums that lose nothing, and the sums of a row's eight lanes. Knows registers. Does not know layer norm. */

/* a + b and its rounding error (Knuth's TwoSum), half of it on the multiplying ports */
ALWAYS vd sum_and_error(vd a, vd b, vd *error) {
    const vd s = a + b, z = minus_d(s, a);
    *error = minus_d(a, s - z) + (b - z);
    return s;
}

/* s + t with its rounding error added to e */
ALWAYS void two_sum(vd *s, vd *e, vd t) {
    vd error;
    *s = sum_and_error(*s, t, &error);
    *e = plus_d(*e, error);
}

/* Σ and its error += t where |t| ≤ |sum| (Dekker's FastTwoSum): half of it on the multiplying ports */
ALWAYS void add_beneath(vd *sum, vd *error, vd t) {
    const vd r = *sum + t;
    *error = plus_d(*error, t - minus_d(r, *sum));
    *sum = r;
}

/* (a + a_rest) · (b + b_rest) as the product, which is returned, and what that lacks */
ALWAYS vd multiply_pairs(vd a, vd a_rest, vd b, vd b_rest, vd *rest) {
    const vd product = a * b;
    *rest = product_error(a, b, product) + (a * b_rest + a_rest * b);
    return product;
}

/* (sum + error) / n as the quotient, which is returned, and what that lacks (0 where it is too small for product_error) */
ALWAYS vd divide_pair(vd sum, vd error, vd n, vd *rest) {
    const vd total = sum + error, quotient = total / n, back = quotient * n;
    const vd left = ((total - back) - product_error(quotient, n, back)) + ((sum - total) + error);
    *rest = (vd)((vm)(left / n) & (magnitude(back) >= 0x1p-900));
    return quotient;
}

#define DEAL(a, b, ...) DEAL_OF(vm, a, b, __VA_ARGS__)

/* Eight rows of eight float64 lanes each, in registers of WD: the rows' sums, WD rows to a register. Always the same tree:
 * lane i + lane i + 4, then + 2, then + 1. `error`, where given, are the lanes' rounding errors: summed along, and the
 * tree's own with them. */
enum { REGS = 8 / WD }; /* registers of eight lanes, or of eight rows */

ALWAYS void join(vd a, vd b, vd a_error, vd b_error, const int pairs, vd *sum, vd *error) {
    *sum = a;
    if (pairs) {
        *error = a_error + b_error;
        two_sum(sum, error, b);
    } else {
        *sum += b;
    }
}

ALWAYS void sum_tree(vd (*row)[REGS], vd (*row_error)[REGS], const int pairs, vd *sum, vd *error) {
    vd t[8], u[8], t_error[8], u_error[8];
    EACH(k, 8) t_error[k] = u_error[k] = t[k] = u[k] = (vd){0};
#define LEVEL(COUNT, IN, IN_E, OUT, OUT_E, LOW, HIGH)                                                                              \
    EACH(k, COUNT)                                                                                                                 \
    join(LOW(IN, k), HIGH(IN, k), pairs ? LOW(IN_E, k) : (vd){0}, pairs ? HIGH(IN_E, k) : (vd){0}, pairs, &OUT[k], &OUT_E[k]);
#if WD == 8
#define LOW_4(v, k) DEAL(v[2 * k][0], v[2 * k + 1][0], 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH_4(v, k) DEAL(v[2 * k][0], v[2 * k + 1][0], 4, 5, 6, 7, 12, 13, 14, 15)
#define LOW_2(v, k) DEAL(v[2 * k], v[2 * k + 1], 0, 1, 4, 5, 8, 9, 12, 13)
#define HIGH_2(v, k) DEAL(v[2 * k], v[2 * k + 1], 2, 3, 6, 7, 10, 11, 14, 15)
#define EVEN(v, k) DEAL(v[2 * k], v[2 * k + 1], 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(v, k) DEAL(v[2 * k], v[2 * k + 1], 1, 3, 5, 7, 9, 11, 13, 15)
    LEVEL(4, row, row_error, t, t_error, LOW_4, HIGH_4)
    LEVEL(2, t, t_error, u, u_error, LOW_2, HIGH_2)
#elif WD == 4
/* rows 0 and 2, 1 and 3: then one instruction brings four together, in their order */
#define UPPER(k) (k / 2 * 4 + k % 2)
#define LOW_4(v, k) v[k][0]
#define HIGH_4(v, k) v[k][1]
#define LOW_2(v, k) DEAL(v[UPPER(k)], v[UPPER(k) + 2], 0, 1, 4, 5)
#define HIGH_2(v, k) DEAL(v[UPPER(k)], v[UPPER(k) + 2], 2, 3, 6, 7)
#define EVEN(v, k) DEAL(v[2 * k], v[2 * k + 1], 0, 4, 2, 6)
#define ODD(v, k) DEAL(v[2 * k], v[2 * k + 1], 1, 5, 3, 7)
    LEVEL(8, row, row_error, t, t_error, LOW_4, HIGH_4)
    LEVEL(4, t, t_error, u, u_error, LOW_2, HIGH_2)
#undef UPPER
#else
#define LOW_4(v, k) v[k][0]
#define HIGH_4(v, k) v[k][2]
#define LOW_4_2(v, k) v[k][1]
#define HIGH_4_2(v, k) v[k][3]
#define EVEN(v, k) DEAL(v[2 * k], v[2 * k + 1], 0, 2)
#define ODD(v, k) DEAL(v[2 * k], v[2 * k + 1], 1, 3)
    LEVEL(8, row, row_error, t, t_error, LOW_4, HIGH_4)
    LEVEL(8, row, row_error, u, u_error, LOW_4_2, HIGH_4_2)
    EACH(k, 8) join(t[k], u[k], t_error[k], u_error[k], pairs, &u[k], &u_error[k]);
#endif
    LEVEL(REGS, u, u_error, sum, error, EVEN, ODD)
#undef LEVEL
#undef LOW_4
#undef HIGH_4
#undef LOW_2
#undef HIGH_2
#undef EVEN
#undef ODD
}
ALWAYS void sum_lanes(vd (*row)[REGS], vd *sum) { sum_tree(row, 0, 0, sum, 0); }
NEVER void sum_pairs(vd (*row)[REGS], vd (*row_error)[REGS], vd *sum, vd *error) { sum_tree(row, row_error, 1, sum, error); }

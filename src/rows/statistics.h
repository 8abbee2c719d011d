/* statistics.h: mean and rstd of a group of rows. Knows sums and their errors. Does not know weights or gradients.
 *
 * centred, a constant of every function that has it: 1 for layer norm, 0 for RMSNorm, whose statistics are about 0: no mean.
 *
 * A row goes to the first of three ways that is exact enough for it; which one depends on the row alone.
 *   raw       float32 only. Σ x and Σ x² in float64: every square is exact, so the only errors are those of adding, below
 *             2^-44 of Σ x². Good while mean² ≤ 2^18 · (var + eps): rstd is then off by less than 2^-27.
 *   centred   Σ (x − pivot) and Σ (x − pivot)² about a pivot near the mean (float32: the raw mean; float64: that of a sample, or 0 where
 *             that is near), as pairs of float64, rstd in double-double. A pivot further off than half a σ is moved, once. Good for every
 *             offset.
 *             RMSNorm's float64: Σ x², by trees.
 *   exact     the row scaled by a power of two (exact.h): what overflows, underflows or is not finite. */

/* Rows finished together: their lanes, divisions and roots share one latency. */
#define GROUP 8
/* Bytes ahead of the sums that are fetched into the second-level cache, where the arrays do not lie there already: rows taken side by
 * side, and the output pass between groups, break the processor's own streams (beyond the caches a quarter of the time). */
#define AHEAD 8192
ALWAYS void fetch(const void *p) { __builtin_prefetch(p, 0, 2); }
ALWAYS void fetch_ahead(const real *p, const int n) { /* what lies AHEAD of n elements at p */
    EACH(k, n * (int)sizeof(real) / 64) fetch((const char *)p + AHEAD + 64 * k);
}

/* Rows of float32 whose sums run side by side: enough chains to hide the latency of adding, no more than there are registers for. */
#define ABREAST (LN_REGISTERS / 16)

/* Elements summed by lane before that goes to the row's sum: bounds a lane's chain (float32: 4096 / 16, float64: 4096 / 8). */
#define CHUNK 4096
/* Elements of a row summed as one tree of four vectors of eight lanes */
#define TREE 32

/* A row's statistics. xhat = ((x · 2^power − hi) − lo) · factor, power 0 but for scaled rows. */
typedef struct {
    double hi, lo, factor; /* the mean, or 0, and the rest of the mean */
    double mean, rstd;     /* what the caller gets */
    int power;
    int exact; /* float64 arithmetic with that power, row by row: exact.h */
} row_stats;

/* Σ (x − pivot) and Σ (x − pivot)² of a group: eight lanes a row, each an unevaluated pair */
typedef struct {
    vd sum[GROUP][REGS], sum_error[GROUP][REGS], square[GROUP][REGS], square_error[GROUP][REGS];
} centred_sums;

/* How many of the WD elements from `at` on lie before `end` */
ALWAYS int left_of(ptrdiff_t at, ptrdiff_t end) {
    const ptrdiff_t n = end - at;
    return n < 0 ? 0 : n > WD ? WD : (int)n;
}

/* Register i of each of the four vectors of eight lanes that make up the tree at j, less the pivot; 0 past the end. `spared` of them
 * on the multiplying ports, so that there are as many operations as on the adding ones. */
ALWAYS void load_centred(const real *x, ptrdiff_t j, int i, ptrdiff_t cols, vd pivot, const int spared, vd d[4]) {
    const real *p = x + j + i * WD;
    if (j + TREE <= cols) {
        EACH(k, 4) d[k] = k < spared ? minus_d(load_double(p + 8 * k), pivot) : load_double(p + 8 * k) - pivot;
        return;
    }
    EACH(k, 4) {
        const int n = left_of(j + i * WD + 8 * k, cols);
        d[k] = n == 0 ? (vd){0} : keep_part(load_part_double(p + 8 * k, n) - pivot, n);
    }
}

/* Σ (x − pivot), which is 0 where not centred, and Σ (x − pivot)² of row r, element j in lane j mod 8, by trees of four and TwoSum: no
 * element is rounded more than three times. Returns the Σ (x − pivot)² up to which that is so: all. */
ALWAYS double sum_trees(const real *x, ptrdiff_t cols, double pivot, int r, int far, const int centred, centred_sums *out) {
    const vd p = splat_d(pivot);
    vd sum[REGS], sum_error[REGS], square[REGS], square_error[REGS];
    EACH(i, REGS) sum[i] = sum_error[i] = square[i] = square_error[i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += TREE) {
        if (far) fetch_ahead(x + j, TREE);
        EACH(i, REGS) {
            vd d[4];
            load_centred(x, j, i, cols, p, centred ? 2 : 0, d);
            if (centred) two_sum(&sum[i], &sum_error[i], (d[0] + d[1]) + (d[2] + d[3]));
            two_sum(&square[i], &square_error[i], plus_d(d[0] * d[0], d[1] * d[1]) + plus_d(d[2] * d[2], d[3] * d[3]));
        }
    }
    EACH(i, REGS) {
        out->sum[r][i] = sum[i];
        out->sum_error[r][i] = sum_error[i];
        out->square[r][i] = square[i];
        out->square_error[r][i] = square_error[i];
    }
    return __builtin_inf();
}

/* From about a pivot to about the mean: Σ (x − pivot) / D as the pair lo + lo_error, and what that takes off Σ (x − pivot)² */
ALWAYS void move_to_mean(vd sum, vd sum_error, vd n, vd *lo, vd *lo_error, vd *square, vd *square_error) {
    vd shift_error;
    const vd total = sum + sum_error, total_error = (sum - total) + sum_error;
    *lo = divide_pair(sum, sum_error, n, lo_error);
    const vd shift = multiply_pairs(total, total_error, *lo, *lo_error, &shift_error);
    *square_error -= shift_error;
    two_sum(square, square_error, -shift);
}

/* mean = pivot + Σ (x − pivot) / D, var = (Σ (x − pivot)² − (Σ (x − pivot))² / D) / D, rstd = 1 / √(var + eps), each to
 * little more than one rounding, for the rows of a group (those of unused rows are computed and dropped). `limit`: the most that
 * Σ (x − pivot)² may be for the sums to be right. plain: the most |mean| · rstd of a row whose pivot is 0, which stays its hi; 0: a
 * pivot of 0 is like any other. */
ALWAYS void finish_centred(centred_sums *rows, const double *pivot, const double *limit, double cols, double eps, const int centred,
                           const double plain, row_stats *stats) {
    vd sum[REGS], sum_error[REGS], square[REGS], square_error[REGS];
    if (centred) sum_lanes(rows->sum, rows->sum_error, 1, sum, sum_error);
    sum_lanes(rows->square, rows->square_error, 1, square, square_error);
    for (int i = 0; i < REGS; ++i) {
        const vd n = splat_d(cols), hi = load_d(pivot + i * WD);

        const vm near = square[i] <= load_d(limit + i * WD);
        vd lo = {0}, lo_error = {0}, var_n = square[i], var_n_error = square_error[i];
        if (centred) move_to_mean(sum[i], sum_error[i], n, &lo, &lo_error, &var_n, &var_n_error);

        /* var + eps as the pair v + v_error */
        vd v_error;
        vd v = divide_pair(var_n, var_n_error, n, &v_error);
        two_sum(&v, &v_error, splat_d(eps));

        /* one Newton step in double-double: rstd = r + r · (1 − v · r²) / 2 */
        const vd r = 1.0 / root(v);
        const vd rr = r * r, rr_error = product_error(r, r, rr);
        const vd vrr = v * rr, vrr_error = product_error(v, rr, vrr);
        const vd miss = ((1.0 - vrr) - vrr_error) - (v * rr_error + v_error * rr);
        const vd rstd = r + r * (miss * 0.5);

        /* the mean as one number and what it lacks */
        vd mean = hi, rest = (vd){0};
        if (centred) {
            two_sum(&mean, &rest, lo);
            rest += lo_error;
        }

        /* the pivot lies within half a σ, 0 nearer, and nothing left its range (NaN fails the test) */
        const vm at_zero = plain > 0 ? hi == 0 : (vm){0};
        const vd reach = pick(at_zero, splat_d(plain * plain), splat_d(0.25));
        const vm good = near & (lo * lo <= v * reach) & (v >= 1 / (RSTD_MAX * RSTD_MAX)) & (v <= RSTD_MAX * RSTD_MAX);
        const vd whole = pick(at_zero, hi, mean), part = pick(at_zero, mean, rest);
        EACH(k, WD) {
            row_stats *s = &stats[i * WD + k];
            s->mean = mean[k];
            s->hi = whole[k];
            s->lo = part[k];
            s->factor = s->rstd = rstd[k];
            s->power = 0;
            s->exact = !good[k];
        }
    }
}

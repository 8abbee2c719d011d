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
ALWAYS void fetch_ahead(const void *p, const int n, const int format) { /* what lies AHEAD of n elements at p */
    EACH(k, n * (int)size_in(format) / 64) fetch((const char *)p + AHEAD + 64 * k);
}

/* Rows of float32 whose sums run side by side: enough chains to hide the latency of adding, no more than there are registers for. */
#define ABREAST (LN_REGISTERS / 16)

/* Elements summed by lane before that goes to the row's sum: bounds a lane's chain (float32: 4096 / 16, float64: 4096 / 8). */
#define CHUNK 4096
/* Elements of a row summed as one tree of four vectors of eight lanes */
#define TREE 32

/* A row that goes the exact way (exact.h): xhat = ((x · 2^power − hi) − lo) · factor, in float64 */
typedef struct {
    double hi, lo, factor; /* the mean, and the rest of the mean */
    double mean, rstd;     /* what the caller gets */
    int power;
} scaled_row;

/* Statistics of a group's rows */
typedef struct {
    double mean[GROUP], rstd[GROUP];                  /* what the caller gets */
    real minus_hi[GROUP], rest[GROUP], factor[GROUP]; /* what standardize makes xhat of */
    int64_t exact[GROUP];                             /* not 0: in place of those, the row's scaled_row */
    scaled_row scaled[GROUP];
} group_stats;

/* Σ (x − pivot) and Σ (x − pivot)² of a group: eight lanes a row, each an unevaluated pair */
typedef struct {
    vd sum[GROUP][REGS], sum_error[GROUP][REGS], square[GROUP][REGS], square_error[GROUP][REGS];
} centred_sums;

/* How many of the WD elements from `at` on lie before `end` */
ALWAYS int left_of(ptrdiff_t at, ptrdiff_t end) {
    const ptrdiff_t n = end - at;
    return n < 0 ? 0 : n > WD ? WD : (int)n;
}

/* Register i of each of the four vectors of eight lanes that make up the tree at x, less the pivot; 0 where no more are `left`. `spared`
 * of them on the multiplying ports, so that there are as many operations as on the adding ones. */
ALWAYS void load_centred(const real *x, int i, ptrdiff_t left, double pivot, const int spared, vd d[4]) {
    const vd p = splat_d(pivot), minus = splat_d(-pivot);
    x += i * WD;
    if (left >= TREE) {
        EACH(k, 4) d[k] = k < spared ? minus_d(load_double(x + 8 * k), p) : load_double(x + 8 * k) + minus;
        return;
    }
    EACH(k, 4) {
        const int n = left_of(i * WD + 8 * k, left);
        d[k] = n == 0 ? (vd){0} : keep_part(load_part_double(x + 8 * k, n) - p, n);
    }
}

/* Eight lanes of a row: two sums, each as a pair */
typedef struct {
    vd sum[REGS], sum_error[REGS], square[REGS], square_error[REGS];
} lane_pairs;

ALWAYS void keep_lanes(const lane_pairs *lanes, int r, centred_sums *out) {
    EACH(i, REGS) {
        out->sum[r][i] = lanes->sum[i];
        out->sum_error[r][i] = lanes->sum_error[i];
        out->square[r][i] = lanes->square[i];
        out->square_error[r][i] = lanes->square_error[i];
    }
}

/* Σ (x − pivot), which is 0 where not centred, and Σ (x − pivot)² of row r, element j in lane j mod 8, by trees of four and TwoSum: no
 * element is rounded more than three times. Returns the Σ (x − pivot)² up to which that is so: all. */
ALWAYS void add_trees(const real *x, ptrdiff_t left, double pivot, int far, const int centred, lane_pairs *s) {
    if (far) fetch_ahead(x, TREE, DTYPE_OF_REAL);
    EACH(i, REGS) {
        vd d[4];
        load_centred(x, i, left, pivot, centred ? 2 : 0, d);
        if (centred) two_sum(&s->sum[i], &s->sum_error[i], (d[0] + d[1]) + (d[2] + d[3]));
        two_sum(&s->square[i], &s->square_error[i], plus_d(d[0] * d[0], d[1] * d[1]) + plus_d(d[2] * d[2], d[3] * d[3]));
    }
}
ALWAYS double sum_trees(const real *x, ptrdiff_t cols, double pivot, int r, int far, const int centred, centred_sums *out) {
    lane_pairs s;
    EACH(i, REGS) s.sum[i] = s.sum_error[i] = s.square[i] = s.square_error[i] = (vd){0};
    ptrdiff_t j = 0;
    for (; j <= cols - TREE; j += TREE)
        add_trees(x + j, TREE, pivot, far, centred, &s);
    if (j < cols) add_trees(x + j, cols - j, pivot, far, centred, &s);
    keep_lanes(&s, r, out);
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

/* What the centred way finds for a register's rows, the mean as hi + lo */
typedef struct {
    vd mean, hi, lo, rstd;
    vm good;
} centred_stats;

/* mean = pivot + Σ (x − pivot) / D, var = (Σ (x − pivot)² − (Σ (x − pivot))² / D) / D, rstd = 1 / √(var + eps), each to
 * little more than one rounding, for a register's rows (those of unused rows are computed and dropped). `limit`: the most that
 * Σ (x − pivot)² may be for the sums to be right. plain: the most |mean| · rstd of a row whose pivot is 0, which stays its hi; 0: a
 * pivot of 0 is like any other. */
ALWAYS centred_stats finish_centred(vd sum, vd sum_error, vd square, vd square_error, vd pivot, vd limit, vd n, double eps,
                                    const int centred, const double plain) {
    const vm near = square <= limit;
    vd lo = {0}, lo_error = {0};
    if (centred) move_to_mean(sum, sum_error, n, &lo, &lo_error, &square, &square_error);

    /* var + eps as the pair v + v_error */
    vd v_error;
    vd v = divide_pair(square, square_error, n, &v_error);
    two_sum(&v, &v_error, splat_d(eps));

    /* one Newton step in double-double: rstd = r + r · (1 − v · r²) / 2 */
    const vd r = 1.0 / root(v);
    const vd rr = r * r, rr_error = product_error(r, r, rr);
    const vd vrr = v * rr, vrr_error = product_error(v, rr, vrr);
    const vd miss = ((1.0 - vrr) - vrr_error) - (v * rr_error + v_error * rr);
    const vd rstd = r + r * (miss * 0.5);

    /* the mean as one number and what it lacks */
    vd mean = pivot, rest = (vd){0};
    if (centred) {
        two_sum(&mean, &rest, lo);
        rest += lo_error;
    }

    /* the pivot lies within half a σ, 0 nearer, and nothing left its range (NaN fails the test) */
    const vm at_zero = plain > 0 ? pivot == 0 : (vm){0};
    const vd reach = pick(at_zero, splat_d(plain * plain), splat_d(0.25));
    const vm good = near & (lo * lo <= v * reach) & (v >= 1 / (RSTD_MAX * RSTD_MAX)) & (v <= RSTD_MAX * RSTD_MAX);
    return (centred_stats){mean, pick(at_zero, pivot, mean), pick(at_zero, mean, rest), rstd, good};
}

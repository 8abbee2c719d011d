/* moments.h: mean and m2 = Σ (x − mean)² of rows, which other slices' are merged with: the statistics' centred way for both types.
 *
 * What m2 may be off by at most, in halves of a float64 epsilon: x − pivot 1, which counts twice, and the square 1, of a sum that is at
 * most 5/4 of m2 (the pivot lies within half a σ): 3.75; what the mean is off by 1.25, the result 1: 6. The mean: 1 of itself, 1.25 of σ. */

/* Between these the variance has its full precision in float64, and so have all squares. */
#define VARIANCE_MIN 0x1p-400
#define VARIANCE_MAX 0x1p400

/* A row that leaves the range, or is not finite, scaled by a power of two; m2 then is what float64 has of it. */
NEVER void scale_moments(const real *x, ptrdiff_t cols, double shift, double *mean, double *m2) {
    scaled_row s;
    pair center, square = {0, 0};
    scale_statistics(x, cols, 0, 1, &s);
    for (ptrdiff_t j = 0; j < cols; ++j) {
        const double d = (scale(x[j], s.power) - s.hi) - s.lo;
        add_to_pair(&square, d * d);
    }
    *m2 = scale(square.sum + square.error, -2 * s.power);
    center = (pair){s.hi, 0};
    add_to_pair(&center, -scale(shift, s.power));
    add_to_pair(&center, s.lo);
    *mean = scale(center.sum + center.error, -s.power);
    if (!(*mean - *mean == 0)) *mean = scale(s.hi + s.lo, -s.power) - shift; /* a shift beyond the scaled range */
}

/* Moments of a group's rows, and what a second turn would start from */
typedef struct {
    double mean[GROUP], m2[GROUP], pivot[GROUP], spread[GROUP];
    int64_t again[GROUP];
} group_moments;

/* From the sums about the pivots; `limit`: as in finish_centred */
ALWAYS void finish_moments(centred_sums *rows, const double *pivot, const double *shift, const double *limit, double cols,
                           group_moments *out) {
    vd sum[REGS], sum_error[REGS], square[REGS], square_error[REGS];
    sum_pairs(rows->sum, rows->sum_error, sum, sum_error);
    sum_pairs(rows->square, rows->square_error, square, square_error);
    EACH(i, REGS) {
        const vd n = splat_d(cols), hi = load_d(pivot + i * WD), whole = square[i];
        vd lo, lo_error, mean = hi, rest = {0};
        move_to_mean(sum[i], sum_error[i], n, &lo, &lo_error, &square[i], &square_error[i]);
        const vd m2 = square[i] + square_error[i], var = m2 / n;

        /* the pivot lies within half a σ, and nothing left its range (NaN fails the test), or every element is the pivot, or so near that m2 is 0 */
        const vm good = (lo * lo * 4 <= var) & (var >= VARIANCE_MIN) & (var <= VARIANCE_MAX);
        const vm constant = (whole == 0) & (lo == 0);
        store_m(out->again + i * WD, ~((good | constant) & (whole <= load_d(limit + i * WD))));

        two_sum(&mean, &rest, -load_d(shift + i * WD));
        two_sum(&mean, &rest, lo);
        store_d(out->mean + i * WD, mean + (rest + lo_error));
        store_d(out->m2 + i * WD, m2);
        store_d(out->pivot + i * WD, hi + lo);
        store_d(out->spread + i * WD, 8 * root(var));
    }
}

/* Of `rows` rows, at most GROUP */
ALWAYS void take_moments(const real *x, const double *shift, int rows, ptrdiff_t cols, int far, double *mean, double *m2) {
    double pivot[GROUP], spread[GROUP], limit[GROUP] = {0}, shifts[GROUP] = {0};
    int64_t wanted[GROUP], any = 1;
    group_stats raw;
    centred_sums sums;
    group_moments found;
    for (int r = 0; shift && r < rows; ++r)
        shifts[r] = shift[r];
    first_statistics(x, DTYPE_OF_REAL, rows, cols, 0, far, 1, pivot, spread, wanted, &raw);
    for (int r = 0; r < GROUP; ++r)
        wanted[r] = r < rows;
    for (int turn = 0; any && turn < 2; ++turn) {
        any = 0;
        for (int r = 0; r < GROUP; ++r) {
            if (wanted[r])
                limit[r] = center_row(x + r * cols, cols, pivot[r], spread[r], r, far, 1, 0, &sums);
            else
                EACH(i, REGS) sums.sum[r][i] = sums.sum_error[r][i] = sums.square[r][i] = sums.square_error[r][i] = (vd){0};
        }
        finish_moments(&sums, pivot, shifts, limit, (double)cols, &found);
        for (int r = 0; r < rows; ++r) {
            if (!wanted[r]) continue;
            mean[r] = found.mean[r];
            m2[r] = found.m2[r];
            pivot[r] = found.pivot[r];
            spread[r] = found.spread[r];
            wanted[r] = found.again[r];
            any |= wanted[r];
        }
    }
    for (int r = 0; r < rows; ++r)
        if (wanted[r]) scale_moments(x + r * cols, cols, shifts[r], &mean[r], &m2[r]);
}

NEVER void moments_body(const ln_operands *a, ptrdiff_t first, ptrdiff_t last, double *sums) {
    const int most = most_rows(a->cols, DTYPE_OF_REAL);
    (void)sums;
    for (ptrdiff_t row = first; row < last; row += most)
        take_moments((const real *)a->x + row * a->cols, a->shift ? a->shift + row : 0,
                     (int)(last - row < most ? last - row : most), a->cols, a->far, a->mean + row, a->m2 + row);
}
PIECE_KERNEL(moments_rows, moments_body)

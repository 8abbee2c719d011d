/* choose.h: which of the three ways (statistics.h) a row's statistics go. The choice depends on the row alone. */

/* The centred way for the rows that want it, about a pivot, once more about the mean that gives where the pivot was too far off, or the
 * row spread too far for it; the exact way for what it cannot do. */
ALWAYS void settle_rows(const real *x, int rows, ptrdiff_t cols, double eps, int far, const int centred, double *pivot,
                        double *spread, int64_t *wanted, row_stats *stats) {
    centred_sums sums;
    row_stats found[GROUP];
    int64_t again = 1;
    double limit[GROUP] = {0};
    for (int turn = 0; again && turn < (centred ? 2 : 1); ++turn) { /* about 0 a second would find the same */
        again = 0;
        for (int r = 0; r < GROUP; ++r) {
            if (r < rows && wanted[r])
                limit[r] = center_row(x + r * cols, cols, centred ? pivot[r] : 0, spread[r], r, far, centred, centred, &sums);
            else
                EACH(i, REGS) sums.sum[r][i] = sums.sum_error[r][i] = sums.square[r][i] = sums.square_error[r][i] = (vd){0};
        }
        finish_centred(&sums, pivot, limit, (double)cols, eps, centred, centred ? PLAIN : 0, found);
        for (int r = 0; r < rows; ++r) {
            if (!wanted[r]) continue;
            stats[r] = found[r];
            wanted[r] = found[r].exact;
            pivot[r] = found[r].mean;
            spread[r] = 8 / found[r].rstd;
            again |= wanted[r];
        }
    }
    for (int r = 0; r < rows; ++r)
        if (wanted[r]) scale_statistics(x + r * cols, cols, eps, centred, &stats[r]);
}
NEVER void center_rows(const real *x, int rows, ptrdiff_t cols, double eps, int far, double *pivot, double *spread, int64_t *wanted,
                       row_stats *stats) {
    settle_rows(x, rows, cols, eps, far, 1, pivot, spread, wanted, stats);
}
NEVER void square_rows(const real *x, int rows, ptrdiff_t cols, double eps, int far, double *pivot, double *spread, int64_t *wanted,
                       row_stats *stats) {
    settle_rows(x, rows, cols, eps, far, 0, pivot, spread, wanted, stats);
}

/* mean and rstd of `rows` rows (at most GROUP) of cols elements each */
ALWAYS void take_statistics(const real *x, int rows, ptrdiff_t cols, double eps, int far, const int centred, row_stats *stats) {
    double pivot[GROUP], spread[GROUP];
    int64_t wanted[GROUP];
    if (first_statistics(x, rows, cols, eps, far, centred, pivot, spread, wanted, stats))
        (centred ? center_rows : square_rows)(x, rows, cols, eps, far, pivot, spread, wanted, stats);
}

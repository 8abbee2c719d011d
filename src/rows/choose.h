/* choose.h: which of the three ways (statistics.h) a row's statistics go. The choice depends on the row alone. */

/* The centred way for rows whose sum is known: only those marked exact on entry, or all when `every` is set. */
NEVER void center_rows(const real *x, int rows, ptrdiff_t cols, double eps, const double *sum, const int *wanted,
                       row_stats *stats) {
    centred_sums sums[GROUP];
    double pivot[GROUP];
    row_stats found[GROUP];
    memset(sums, 0, sizeof sums);
    for (int r = 0; r < GROUP; ++r)
        pivot[r] = 0;
    for (int r = 0; r < rows; ++r) {
        if (!wanted[r]) continue;
        pivot[r] = sum[r] / (double)cols;
        center_row(x + r * cols, cols, pivot[r], &sums[r]);
    }
    finish_centred(sums, pivot, (double)cols, eps, found);
    for (int r = 0; r < rows; ++r)
        if (wanted[r]) stats[r] = found[r];
}

/* mean and rstd of `rows` rows (at most GROUP) of cols elements each */
ALWAYS void take_statistics(const real *x, int rows, ptrdiff_t cols, double eps, row_stats *stats) {
    double sum[GROUP] = {0};
    int wanted[GROUP];
#if REAL_IS_F32
    double square[GROUP] = {0};
    int any = 0;
    for (int r = 0; r < rows; ++r)
        sum_row(x + r * cols, cols, &sum[r], &square[r]);
    for (int r = 0; r < GROUP; r += WD) {
        const vd n = splat_d((double)cols);
        vd mean = load_d(sum + r) / n;
        vd v = (load_d(square + r) / n - mean * mean) + eps;
        vd rstd = 1.0 / root(v);
        EACH(k, WD) {
            row_stats *s = &stats[r + k];
            s->hi = s->mean = mean[k];
            s->lo = 0;
            s->factor = s->rstd = rstd[k];
            s->power = s->exact = 0;
            wanted[r + k] =
                !(mean[k] * mean[k] <= 0x1p18 * v[k] && v[k] >= 1 / (RSTD_MAX * RSTD_MAX) && v[k] <= RSTD_MAX * RSTD_MAX);
        }
    }
    for (int r = 0; r < rows; ++r)
        any |= wanted[r];
    if (any) center_rows(x, rows, cols, eps, sum, wanted, stats);
#else
    for (int r = 0; r < rows; ++r) {
        sum[r] = sum_row(x + r * cols, cols);
        wanted[r] = 1;
    }
    center_rows(x, rows, cols, eps, sum, wanted, stats);
#endif
    for (int r = 0; r < rows; ++r)
        if (stats[r].exact) scale_statistics(x + r * cols, cols, eps, &stats[r]);
}

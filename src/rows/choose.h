/* choose.h: which of the three ways (statistics.h) a row's statistics go. The choice depends on the row alone. */

/* The centred way for the rows that want it, about a pivot, once more about the mean that gives where the pivot was too far off; the
 * exact way for what it cannot do. */
NEVER void center_rows(const real *x, int rows, ptrdiff_t cols, double eps, double *pivot, int64_t *wanted, row_stats *stats) {
    centred_sums sums;
    row_stats found[GROUP];
    int64_t again = 1;
    for (int turn = 0; again && turn < 2; ++turn) {
        again = 0;
        for (int r = 0; r < GROUP; ++r) {
            if (r < rows && wanted[r])
                center_row(x + r * cols, cols, pivot[r], r, &sums);
            else
                EACH(i, REGS) sums.sum[r][i] = sums.sum_error[r][i] = sums.square[r][i] = sums.square_error[r][i] = (vd){0};
        }
        finish_centred(&sums, pivot, (double)cols, eps, found);
        for (int r = 0; r < rows; ++r) {
            if (!wanted[r]) continue;
            stats[r] = found[r];
            wanted[r] = found[r].exact;
            pivot[r] = found[r].hi;
            again |= wanted[r];
        }
    }
    for (int r = 0; r < rows; ++r)
        if (wanted[r]) scale_statistics(x + r * cols, cols, eps, &stats[r]);
}

/* mean and rstd of `rows` rows (at most GROUP) of cols elements each */
ALWAYS void take_statistics(const real *x, int rows, ptrdiff_t cols, double eps, row_stats *stats) {
    vd sum[REGS];
    double pivot[GROUP];
    int64_t wanted[GROUP];
#if REAL_IS_F32
    vd square[REGS];
    const vd n = splat_d((double)cols);
    int64_t any = 0;
    sum_rows(x, rows, cols, sum, square);
    EACH(i, REGS) {
        const vd mean = sum[i] / n;
        const vd v = (square[i] / n - mean * mean) + eps;
        const vd rstd = 1.0 / root(v);
        const vm good = (mean * mean <= 0x1p18 * v) & (v >= 1 / (RSTD_MAX * RSTD_MAX)) & (v <= RSTD_MAX * RSTD_MAX);
        store_d(pivot + i * WD, mean);
        store_m(wanted + i * WD, ~good);
        EACH(k, WD) {
            row_stats *s = &stats[i * WD + k];
            s->hi = s->mean = mean[k];
            s->lo = 0;
            s->factor = s->rstd = rstd[k];
            s->power = s->exact = 0;
        }
    }
    for (int r = 0; r < rows; ++r)
        any |= wanted[r];
    if (any) center_rows(x, rows, cols, eps, pivot, wanted, stats);
#else
    vd lanes[GROUP][REGS];
    double count = 1;
    for (int r = 0; r < GROUP; ++r) {
        wanted[r] = r < rows;
        if (r < rows)
            count = sample_row(x + r * cols, cols, lanes[r]);
        else
            EACH(i, REGS) lanes[r][i] = (vd){0};
    }
    sum_lanes(lanes, 0, 0, sum, 0);
    EACH(i, REGS) store_d(pivot + i * WD, sum[i] / count);
    center_rows(x, rows, cols, eps, pivot, wanted, stats);
#endif
}

/* choose.h: which of the three ways (statistics.h) a row's statistics go. The choice depends on the row alone. */

/* Row `r` of a group's statistics from another's */
ALWAYS void copy_row(const group_stats *from, int r, group_stats *to) {
    to->mean[r] = from->mean[r];
    to->rstd[r] = from->rstd[r];
    to->minus_hi[r] = from->minus_hi[r];
    to->rest[r] = from->rest[r];
    to->factor[r] = from->factor[r];
    to->exact[r] = from->exact[r];
    if (to->exact[r]) to->scaled[r] = from->scaled[r];
}

/* The centred way for the rows that want it, about a pivot, once more about the mean that gives where the pivot was too far off, or the
 * row spread too far for it; the exact way for what it cannot do. */
ALWAYS void settle_rows(const real *x, int rows, ptrdiff_t cols, double eps, int far, const int centred, double *pivot,
                        double *spread, int64_t *wanted, group_stats *stats) {
    centred_sums sums;
    group_stats found;
    int64_t good[GROUP], again = 1;
    double limit[GROUP] = {0};
    for (int turn = 0; again && turn < (centred ? 2 : 1); ++turn) { /* about 0 a second would find the same */
        group_stats *to = turn == 0 && ALL_ARE_CENTRED ? stats : &found;
        vd sum[REGS], sum_error[REGS], square[REGS], square_error[REGS];
        for (int r = 0; r < GROUP; ++r) {
            if (r < rows && wanted[r])
                limit[r] = center_row(x + r * cols, cols, centred ? pivot[r] : 0, spread[r], r, far, centred, centred, &sums);
            else
                EACH(i, REGS) sums.sum[r][i] = sums.sum_error[r][i] = sums.square[r][i] = sums.square_error[r][i] = (vd){0};
        }
        add_up(&sums, cols, centred, sum, sum_error, square, square_error);
        EACH(i, REGS) {
            const centred_stats s =
                finish_centred(sum[i], sum_error[i], square[i], square_error[i], load_d(pivot + i * WD), load_d(limit + i * WD),
                               splat_d((double)cols), eps, centred, centred ? PLAIN : 0);
            store_m(good + i * WD, s.good);
            keep_stats(s.mean, s.hi, s.lo, s.rstd, i, centred, to);
        }
        again = 0;
        for (int r = 0; r < rows; ++r)
            again |= wanted[r] & ~good[r];
        for (int r = 0; r < rows && (again || to != stats); ++r) {
            if (!wanted[r]) continue;
            if (to != stats) copy_row(to, r, stats);
            wanted[r] = ~good[r];
            pivot[r] = stats->mean[r];
            spread[r] = 8 / stats->rstd[r];
        }
    }
    for (int r = 0; r < rows && again; ++r) {
        if (!wanted[r]) continue;
        scaled_row *row = &stats->scaled[r];
        scale_statistics(x + r * cols, cols, eps, centred, row);
        stats->exact[r] = 1;
        stats->mean[r] = row->mean;
        stats->rstd[r] = row->rstd;
    }
}
NEVER void center_rows(const real *x, int rows, ptrdiff_t cols, double eps, int far, double *pivot, double *spread, int64_t *wanted,
                       group_stats *stats) {
    settle_rows(x, rows, cols, eps, far, 1, pivot, spread, wanted, stats);
}
NEVER void square_rows(const real *x, int rows, ptrdiff_t cols, double eps, int far, double *pivot, double *spread, int64_t *wanted,
                       group_stats *stats) {
    settle_rows(x, rows, cols, eps, far, 0, pivot, spread, wanted, stats);
}

/* mean and rstd of `rows` rows (at most GROUP) of cols elements each. room: where they are widened for what is rare, if they are not reals */
ALWAYS void take_statistics(const void *x, const int format, int rows, ptrdiff_t cols, double eps, int far, const int centred,
                            real *room, group_stats *stats) {
    double pivot[GROUP], spread[GROUP];
    int64_t wanted[GROUP];
    if (!first_statistics(x, format, rows, cols, eps, far, centred, pivot, spread, wanted, stats)) return;
    (centred ? center_rows : square_rows)(reals_of(x, rows * cols, format, room), rows, cols, eps, far, pivot, spread, wanted,
                                          stats);
}

/* choose_gradient.h: which way (gradient.h) a row's gradient goes, and the constants for it. The choice depends on the row alone. */

/* Whether dy · weight is 0 in every column, because one of the two is: a padding row's gradient, a frozen weight. */
ALWAYS int is_without_gradient(const real *dy, const real *weight, ptrdiff_t cols) {
    for (ptrdiff_t j = 0; j < cols; j += 64) {
        const ptrdiff_t end = cols - j < 64 ? cols : j + 64;
        int any = 0;
        for (ptrdiff_t k = j; k < end; ++k)
            any |= dy[k] != 0 && (!weight || weight[k] != 0);
        if (any) return 0;
    }
    return 1;
}

/* Register i's rows' constants from their means. exact: where a test fails, NaN included; without dx, only what is not fit. */
ALWAYS void set_constants(vd mean, vd rstd, const gradient_means *means, int i, int wanted, group_gradient *g) {
    const vd size = means->size[i] + magnitude(means->mean_hd[i]) * rstd;
    const vm sized = round_constants(mean, rstd, means, i, size, g) & (size >= SCALE_MIN) & (size * rstd <= SCALE_MAX);
    const vm fit = is_fit(mean, rstd, means->lo[i]) & (rstd >= 1 / RSTD_MAX) & (rstd <= RSTD_MAX);
    store_m(g->fit + i * WD, fit);
    store_m(g->exact + i * WD, ~(wanted ? fit & sized : fit));
}

/* The exact way for the rows that are marked for it, but for those where h is 0 throughout: their constants are right as they are.
 * Returns whether any is left. */
NEVER int exact_gradients(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd,
                          const double *mean_h, const double *mean_hd, int rows, ptrdiff_t cols, int centred, group_gradient *g) {
    int any = 0;
    for (int r = 0; r < rows; ++r) {
        if (!g->exact[r]) continue;
        if (g->fit[r] && mean_h[r] == 0 && mean_hd[r] == 0 && is_without_gradient(dy + r * cols, weight, cols)) {
            g->exact[r] = 0;
        } else {
            scale_gradient(x + r * cols, dy + r * cols, weight, cols, mean[r], rstd[r], centred, &g->rows[r]);
            any = 1;
        }
    }
    return any;
}

/* The constants of `rows` rows (at most GROUP); wanted: dx is; mean: not looked at where not centred. room: where their x and dy, (rows,
 * cols) each, are widened for what is rare, if they are not reals */
ALWAYS void choose_constants(const void *x, const void *dy, const int format, const real *weight, const double *mean,
                             const double *rstd, int rows, ptrdiff_t cols, int far, int wanted, const int centred, real *room,
                             group_gradient *g) {
    double m_room[GROUP] = {0}, s_room[GROUP] = {0}, mean_h[GROUP], mean_hd[GROUP];
    const double *m = centred ? mean : m_room, *s = rstd;
    int64_t any_exact = 0;
    gradient_means means;
    /* A whole group's are read where they lie: to copy them took a fiftieth of the time where rows are short. */
    if (rows < GROUP) {
        for (int r = 0; r < rows; ++r) {
            if (centred) m_room[r] = mean[r];
            s_room[r] = rstd[r];
        }
        m = m_room, s = s_room;
    }
    take_means(x, dy, format, weight, m, s, rows, cols, far, wanted, centred, &means);
    EACH(i, REGS)
    set_constants(load_d(m + i * WD), load_d(s + i * WD), &means, i, wanted, g);
    for (int r = 0; r < rows; ++r)
        any_exact |= g->exact[r];
    g->any_exact = 0;
    if (!any_exact) return;
    EACH(i, REGS) {
        store_d(mean_h + i * WD, means.mean_h[i]);
        store_d(mean_hd + i * WD, means.mean_hd[i]);
    }
    x = reals_of(x, rows * cols, format, room);
    dy = reals_of(dy, rows * cols, format, room + rows * cols);
    g->any_exact = exact_gradients(x, dy, weight, m, s, mean_h, mean_hd, rows, cols, centred, g);
}
typedef void constants_pass(const void *x, const void *dy, const real *weight, const double *mean, const double *rstd, int rows,
                            ptrdiff_t cols, int far, int wanted, real *room, group_gradient *g);
#define CONSTANTS_PASS(NAME, CENTRED, FORMAT)                                                                                      \
    NEVER void NAME(const void *x, const void *dy, const real *weight, const double *mean, const double *rstd, int rows,           \
                    ptrdiff_t cols, int far, int wanted, real *room, group_gradient *g) {                                          \
        choose_constants(x, dy, FORMAT, weight, mean, rstd, rows, cols, far, wanted, CENTRED, room, g);                            \
    }
CONSTANTS_PASS(take_gradient, 1, DTYPE_OF_REAL)
CONSTANTS_PASS(take_gradient_rms, 0, DTYPE_OF_REAL)
#if HAS_HALF
CONSTANTS_PASS(take_gradient_float16, 1, LN_FLOAT16)
CONSTANTS_PASS(take_gradient_float16_rms, 0, LN_FLOAT16)
CONSTANTS_PASS(take_gradient_bfloat16, 1, LN_BFLOAT16)
CONSTANTS_PASS(take_gradient_bfloat16_rms, 0, LN_BFLOAT16)
#endif
#undef CONSTANTS_PASS

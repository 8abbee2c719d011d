/* gradient_f32.h: the raw way of float32 (statistics_f32.h) for the gradient's sums, and its constants as float32. */

/* mean(h) and mean(h · (x − mean)) from Σ h and Σ h · x; returns whether any row's mean is too far off for that. */
ALWAYS int first_gradient(const float *x, const float *dy, const float *weight, const double *mean, const double *rstd, int rows,
                          ptrdiff_t cols, gradient_means *means, int64_t *wanted) {
    const vd share = splat_d(1 / (double)cols);
    int64_t any = 0;
    sum_rows(x, dy, weight, rows, cols, means->mean_h, means->mean_hd);
    EACH(i, REGS) {
        const vd mean_i = load_d(mean + i * WD);
        means->lo[i] = (vd){0};
        means->mean_h[i] *= share;
        means->mean_hd[i] = means->mean_hd[i] * share - mean_i * means->mean_h[i];
        store_m(wanted + i * WD, ~(magnitude(mean_i) * load_d(rstd + i * WD) <= 0x1p17));
    }
    for (int r = 0; r < rows; ++r)
        any |= wanted[r];
    return any != 0;
}

/* WD rows' constants rounded to float32; a mask of the rows for which that loses nothing that counts */
ALWAYS vm round_constants(vd mean, vd rstd, vd lo, vd mean_h, vd k2, int at, group_gradient *g) {
    const vh short_rstd = narrow(rstd), hi = narrow(mean);
    const vd rest = (mean - widen(hi)) + lo;
    const vh short_lo = narrow(rest);
    store_h(g->hi + at, hi);
    store_h(g->lo + at, short_lo);
    store_h(g->rstd + at, short_rstd);
    store_h(g->k1 + at, narrow(widen(short_rstd) * mean_h)); /* from the rounded rstd: equal h cancel to 0 exactly */
    store_h(g->k2 + at, narrow(k2));
    return (magnitude(rest - widen(short_lo)) * rstd <= 0x1p-27) &
           ((k2 == 0) | ((magnitude(k2) >= 0x1p-126) & (magnitude(k2) <= SCALE_MAX)));
}

/* gradient_f64.h: where float64's gradient sums begin: at the centred way. */

/* Nothing yet: all rows want the centred way. */
ALWAYS int first_gradient(const double *x, const double *dy, const double *weight, const double *mean, const double *rstd, int rows,
                          ptrdiff_t cols, gradient_means *means, int64_t *wanted) {
    (void)x, (void)dy, (void)weight, (void)mean, (void)rstd, (void)cols;
    EACH(i, REGS) means->lo[i] = means->mean_h[i] = means->mean_hd[i] = (vd){0};
    for (int r = 0; r < GROUP; ++r)
        wanted[r] = r < rows ? -1 : 0;
    return 1;
}

/* WD rows' constants as they are */
ALWAYS vm round_constants(vd mean, vd rstd, vd lo, vd mean_h, vd k2, int at, group_gradient *g) {
    store_d(g->hi + at, mean);
    store_d(g->lo + at, lo);
    store_d(g->rstd + at, rstd);
    store_d(g->k1 + at, rstd * mean_h);
    store_d(g->k2 + at, k2);
    return ~(vm){0};
}

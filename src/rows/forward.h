/* forward.h: statistics, then y, group of rows after group of rows. */

/* Rows whose statistics are taken together: as many as lie close by in the second-level cache until they are written. */
#define GROUP_BYTES 65536

/* Elements j … j + n − 1 of one row of y; n = W: all lanes.
 * y = (x − mean) · rstd · weight + bias,   mean = hi + lo */
ALWAYS void normalize(const real *x, const real *weight, const real *bias, ptrdiff_t j, int n, vec hi, vec lo, vec rstd,
                      const int streams, real *y) {
    vec v = ((load_n(x + j, n) - hi) - lo) * rstd;
    if (weight) v *= load_n(weight + j, n);
    if (bias) v += load_n(bias + j, n);
    write_n(y + j, v, n, streams);
}

ALWAYS void normalize_row(const real *x, const real *weight, const real *bias, ptrdiff_t cols, real hi_, real lo_, real rstd_,
                          const int streams, real *y) {
    const vec hi = splat(hi_), lo = splat(lo_), rstd = splat(rstd_);
    ptrdiff_t j = streams ? head_of(y, cols) : 0;
    if (j > 0) normalize(x, weight, bias, 0, (int)j, hi, lo, rstd, streams, y);
    for (; j + W <= cols; j += W) {
        if (streams) fetch(x + j + 2 * AHEAD / sizeof(real)); /* from memory: a tenth of the time */
        normalize(x, weight, bias, j, W, hi, lo, rstd, streams, y);
    }
    if (j < cols) normalize(x, weight, bias, j, (int)(cols - j), hi, lo, rstd, streams, y);
}

/* The compiler's copies of it: weight and bias there or not. */
ALWAYS void normalize_any_row(const real *x, const real *weight, const real *bias, ptrdiff_t cols, real hi, real lo, real rstd,
                              const int streams, real *y) {
    if (weight && bias)
        normalize_row(x, weight, bias, cols, hi, lo, rstd, streams, y);
    else if (weight)
        normalize_row(x, weight, 0, cols, hi, lo, rstd, streams, y);
    else if (bias)
        normalize_row(x, 0, bias, cols, hi, lo, rstd, streams, y);
    else
        normalize_row(x, 0, 0, cols, hi, lo, rstd, streams, y);
}

ALWAYS int group_rows(ptrdiff_t cols) {
    const ptrdiff_t fit = GROUP_BYTES / (cols * (ptrdiff_t)sizeof(real));
    return fit < 1 ? 1 : fit > GROUP ? GROUP : (int)fit;
}

NEVER void forward_body(const real *x, const real *weight, const real *bias, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols,
                        double eps, int far, real *y, double *mean, double *rstd) {
    const int group = group_rows(cols), streams = far && y != x;
    for (ptrdiff_t row = first; row < last; row += group) {
        const int rows = (int)(last - row < group ? last - row : group);
        row_stats stats[GROUP];
        take_statistics(x + row * cols, rows, cols, eps, far, stats);
        for (int r = 0; r < rows; ++r) {
            row_stats *s = &stats[r];
            const real *from = x + (row + r) * cols;
            real *to = y + (row + r) * cols;
            real hi, lo;
            if (mean) mean[row + r] = s->mean;
            if (rstd) rstd[row + r] = s->rstd;
            if (!s->exact) split_mean(s, &hi, &lo);
            if (s->exact)
                scale_normalize(from, weight, bias, cols, s, to);
            else if (streams)
                normalize_any_row(from, weight, bias, cols, hi, lo, (real)s->factor, 1, to);
            else
                normalize_any_row(from, weight, bias, cols, hi, lo, (real)s->factor, 0, to);
        }
    }
    if (streams) stream_end();
}

static void forward_rows(const void *x, const void *weight, const void *bias, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols,
                         double eps, int far, void *y, double *mean, double *rstd) {
    const fp_mode mode = fp_enter();
    forward_body(x, weight, bias, first, last, cols, eps, far, y, mean, rstd);
    fp_leave(mode);
}

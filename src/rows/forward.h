/* forward.h: statistics, then y, group of rows after group of rows. */

/* y = (x − mean) · rstd · weight + bias of one row; mean = hi + lo in reals */
ALWAYS void normalize_row(const real *x, const real *weight, const real *bias, ptrdiff_t cols, real hi_, real lo_, real rstd_,
                          const int has_weight, const int has_bias, const int streams, real *y) {
    const vec hi = splat(hi_), lo = splat(lo_), rstd = splat(rstd_);
    ptrdiff_t j = 0;
    if (streams) {
        /* up to the first aligned element of y */
        const ptrdiff_t off = (ptrdiff_t)((uintptr_t)y % LN_BYTES) / (ptrdiff_t)sizeof(real);
        const ptrdiff_t head = off ? W - off : 0;
        const int n = (int)(head < cols ? head : cols);
        if (n) {
            vec v = ((load_part(x, n) - hi) - lo) * rstd;
            if (has_weight) v *= load_part(weight, n);
            if (has_bias) v += load_part(bias, n);
            store_part(y, v, n);
        }
        j = n;
    }
    for (; j + W <= cols; j += W) {
        vec v = ((load(x + j) - hi) - lo) * rstd;
        if (has_weight) v *= load(weight + j);
        if (has_bias) v += load(bias + j);
        if (streams)
            stream(y + j, v);
        else
            store(y + j, v);
    }
    if (j < cols) {
        const int n = (int)(cols - j);
        vec v = ((load_part(x + j, n) - hi) - lo) * rstd;
        if (has_weight) v *= load_part(weight + j, n);
        if (has_bias) v += load_part(bias + j, n);
        store_part(y + j, v, n);
    }
}

/* The mean as two reals. They lose nothing that counts (2^-27 of σ), or the row is marked for the exact way. */
ALWAYS void split_mean(row_stats *s, real *hi, real *lo) {
#if REAL_IS_F32
    *hi = (float)s->mean;
    *lo = (float)((s->hi - *hi) + s->lo);
    double left = ((s->hi - *hi) + s->lo) - *lo;
    left = left < 0 ? -left : left;
    if (!(left * s->rstd <= 0x1p-27)) s->exact = 1;
#else
    *hi = s->hi;
    *lo = s->lo;
#endif
}

/* Rows whose statistics are taken together: as many as stay in the first-level cache until they are written. */
ALWAYS int group_rows(ptrdiff_t cols) {
    const ptrdiff_t fit = 16384 / (cols * (ptrdiff_t)sizeof(real));
    return fit < 1 ? 1 : fit > GROUP ? GROUP : (int)fit;
}

NEVER void forward_body(const real *x, const real *weight, const real *bias, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols,
                        double eps, int streams, real *y, double *mean, double *rstd) {
    const int group = group_rows(cols);
    for (ptrdiff_t row = first; row < last; row += group) {
        const int rows = (int)(last - row < group ? last - row : group);
        row_stats stats[GROUP];
        take_statistics(x + row * cols, rows, cols, eps, stats);
        for (int r = 0; r < rows; ++r) {
            row_stats *s = &stats[r];
            const real *from = x + (row + r) * cols;
            real *to = y + (row + r) * cols;
            real hi, lo;
            if (mean) mean[row + r] = s->mean;
            if (rstd) rstd[row + r] = s->rstd;
            if (!s->exact) split_mean(s, &hi, &lo);
            if (s->exact) scale_normalize(from, weight, bias, cols, s, to);
#define CASE(HAS_WEIGHT, HAS_BIAS)                                                                                                 \
    else if (!!weight == HAS_WEIGHT && !!bias == HAS_BIAS) {                                                                       \
        if (streams)                                                                                                               \
            normalize_row(from, weight, bias, cols, hi, lo, (real)s->factor, HAS_WEIGHT, HAS_BIAS, 1, to);                         \
        else                                                                                                                       \
            normalize_row(from, weight, bias, cols, hi, lo, (real)s->factor, HAS_WEIGHT, HAS_BIAS, 0, to);                         \
    }
            CASE(1, 1)
            CASE(1, 0)
            CASE(0, 1)
            CASE(0, 0)
#undef CASE
        }
    }
    if (streams) stream_end();
}

static void forward_rows(const void *x, const void *weight, const void *bias, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols,
                         double eps, int streams, void *y, double *mean, double *rstd) {
    const fp_mode mode = fp_enter();
    forward_body(x, weight, bias, first, last, cols, eps, streams, y, mean, rstd);
    fp_leave(mode);
}

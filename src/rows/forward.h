/* forward.h: statistics, then y, group of rows after group of rows: layer norm's and RMSNorm's. */

/* Rows whose statistics are taken together: as many as lie close by in the second-level cache until they are written. */
#define GROUP_BYTES 65536

/* Columns for which all rows of a group are written in turn: their weights and biases stay in the first-level cache. */
#define SPAN (4096 / (int)sizeof(real))
/* Vectors written at once, all their loads before all their stores: a load behind a store to the same place in another page waits for it. */
#define VECTORS 4

/* y = (x − mean) · rstd · weight + bias,   mean = hi + what `rest` stands for; weighted, biased: whether there is one. The sum x + −hi is
 * the difference, and takes x from memory. */
ALWAYS vec normalize_vector(vec x, vec minus_hi, vec rest, vec rstd, const int weighted, vec weight, const int biased, vec bias,
                            const int centred) {
    const vec xhat = centred ? standardize(x, minus_hi, rest, rstd) : x * rstd;
    if (weighted && biased) return multiply_add(xhat, weight, bias);
    return weighted ? xhat * weight : biased ? xhat + bias : xhat;
}

/* `vectors` vectors of one row of y from column j on, the first n lanes of each; n = W: all lanes. `format`, a constant: what y is stored
 * as, x's own or narrower. */
ALWAYS void normalize(const real *x, const real *weight, const real *bias, ptrdiff_t j, const int vectors, int n, vec minus_hi,
                      vec rest, vec rstd, const int streams, const int centred, const int format, void *y) {
    vec v[VECTORS];
    EACH(k, vectors) v[k] = load_n(x + j + k * W, n);
    EACH(k, vectors) {
        const vec w = weight ? load_n(weight + j + k * W, n) : rest, b = bias ? load_n(bias + j + k * W, n) : rest;
        v[k] = normalize_vector(v[k], minus_hi, rest, rstd, weight != 0, w, bias != 0, b, centred);
    }
    EACH(k, vectors) write_as(y, j + k * W, v[k], n, streams, format);
}

/* Columns j … last − 1 of a row; the first `head` of them, which may be none, are taken apart */
ALWAYS void normalize_columns(const real *x, const real *weight, const real *bias, ptrdiff_t j, int head, ptrdiff_t last,
                              real minus_hi_, real rest_, real rstd_, const int streams, const int centred, const int format,
                              void *y) {
    const vec minus_hi = splat(minus_hi_), rest = splat(rest_), rstd = splat(rstd_);
    if (head) normalize(x, weight, bias, j, 1, head, minus_hi, rest, rstd, streams, centred, format, y);
    for (j += head; j + VECTORS * W <= last; j += VECTORS * W) {
        if (streams && format == DTYPE_OF_REAL)
            fetch_ahead(x + j + AHEAD / sizeof(real), VECTORS * W); /* from memory: a tenth of the time */
        normalize(x, weight, bias, j, VECTORS, W, minus_hi, rest, rstd, streams, centred, format, y);
    }
    for (; j + W <= last; j += W)
        normalize(x, weight, bias, j, 1, W, minus_hi, rest, rstd, streams, centred, format, y);
    if (j < last) normalize(x, weight, bias, j, 1, (int)(last - j), minus_hi, rest, rstd, streams, centred, format, y);
}

/* The compiler's copies of it: weight and bias there or not. */
ALWAYS void normalize_any(const real *x, const real *weight, const real *bias, ptrdiff_t j, int head, ptrdiff_t last, real minus_hi,
                          real rest, real rstd, const int streams, const int centred, const int format, void *y) {
    if (weight && bias)
        normalize_columns(x, weight, bias, j, head, last, minus_hi, rest, rstd, streams, centred, format, y);
    else if (weight)
        normalize_columns(x, weight, 0, j, head, last, minus_hi, rest, rstd, streams, centred, format, y);
    else if (bias)
        normalize_columns(x, 0, bias, j, head, last, minus_hi, rest, rstd, streams, centred, format, y);
    else
        normalize_columns(x, 0, 0, j, head, last, minus_hi, rest, rstd, streams, centred, format, y);
}

/* The few columns of a row that share a line with the row before or after it, through the caches */
ALWAYS void normalize_end(const real *x, const real *weight, const real *bias, ptrdiff_t j, ptrdiff_t last, real minus_hi,
                          real rest, real rstd, const int centred, const int format, void *y) {
    for (; j < last; j += W)
        normalize(x, weight, bias, j, 1, at_most(last - j), splat(minus_hi), splat(rest), splat(rstd), 0, centred, format, y);
}

ALWAYS int most_rows(ptrdiff_t cols) {
    const ptrdiff_t fit = GROUP_BYTES / (cols * (ptrdiff_t)sizeof(real));
    return fit < 1 ? 1 : fit > GROUP ? GROUP : (int)fit;
}

/* Columns j … last − 1 of a row, whichever way it goes; the exact way writes all of them when j is 0, first to x where y is narrower */
ALWAYS void write_columns(const real *x, const real *weight, const real *bias, ptrdiff_t cols, ptrdiff_t j, ptrdiff_t last,
                          const group_stats *s, int r, int streams, const int centred, const int format, void *y) {
    const real minus_hi = centred ? s->minus_hi[r] : 0, rest = centred ? s->rest[r] : 0, factor = s->factor[r];
    if (!centred) bias = 0; /* there is none: no copies for it */
    if (s->exact[r]) {
        real *own = format == DTYPE_OF_REAL ? y : (real *)x;
        if (j == 0) scale_normalize(x, weight, bias, cols, &s->scaled[r], own);
        if (format != DTYPE_OF_REAL) write_run(own, cols, format, y, size_in(format), 0);
    } else if (streams) {
        const void *to = (char *)y + j * size_in(format);
        const ptrdiff_t size = size_in(format), n = last - j;
        const int pieces = format == DTYPE_OF_REAL && ((uintptr_t)to | (uintptr_t)(n * size)) % 16 == 0;
        const ptrdiff_t from = pieces ? j : j + before_lines(to, n, size), until = pieces ? last : j + end_of_lines(to, n, size);
        const int head = head_in((char *)y + from * size, until - from, format);
        normalize_end(x, weight, bias, j, from, minus_hi, rest, factor, centred, format, y);
        normalize_any(x, weight, bias, from, head, until, minus_hi, rest, factor, 1, centred, format, y);
        normalize_end(x, weight, bias, until, last, minus_hi, rest, factor, centred, format, y);
    } else {
        normalize_any(x, weight, bias, j, 0, last, minus_hi, rest, factor, 0, centred, format, y);
    }
}

/* The same, for the spans after a row's first: one copy of it, out of the way of the rows that have one */
NEVER void write_more(const real *x, const real *weight, const real *bias, ptrdiff_t cols, ptrdiff_t j, ptrdiff_t last,
                      const group_stats *s, int r, int streams, real *y) {
    write_columns(x, weight, bias, cols, j, last, s, r, streams, 1, DTYPE_OF_REAL, y);
}
NEVER void write_more_rms(const real *x, const real *weight, const real *bias, ptrdiff_t cols, ptrdiff_t j, ptrdiff_t last,
                          const group_stats *s, int r, int streams, real *y) {
    write_columns(x, weight, bias, cols, j, last, s, r, streams, 0, DTYPE_OF_REAL, y);
}

/* What the caller gets of a group */
ALWAYS void keep_rows(const double *from, int rows, double *to) {
    if (rows == GROUP)
        EACH(i, REGS) store_d(to + i * WD, load_d(from + i * WD));
    else
        for (int r = 0; r < rows; ++r)
            to[r] = from[r];
}

ALWAYS void take_rows(const real *x, const real *weight, const real *bias, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols,
                      double eps, int far, int streams, const int centred, const int format, void *y, double *mean, double *rstd) {
    const int most = most_rows(cols);
    for (ptrdiff_t row = first; row < last; row += most) {
        const int rows = (int)(last - row < most ? last - row : most);
        group_stats stats;
        take_statistics(x + row * cols, rows, cols, eps, far, centred, &stats);
        if (centred && mean) keep_rows(stats.mean, rows, mean + row);
        if (rstd) keep_rows(stats.rstd, rows, rstd + row);
        const ptrdiff_t span = cols < 2 * SPAN || format != DTYPE_OF_REAL ? cols : SPAN;
        for (int r = 0; r < rows; ++r)
            write_columns(x + (row + r) * cols, weight, bias, cols, 0, span, &stats, r, streams, centred, format,
                          (char *)y + (row + r) * cols * size_in(format));
        for (ptrdiff_t j = span; j < cols; j += span) {
            for (int r = 0; r < rows; ++r)
                (centred ? write_more : write_more_rms)(x + (row + r) * cols, weight, bias, cols, j,
                                                        cols - j < span ? cols : j + span, &stats, r, streams,
                                                        (real *)y + (row + r) * cols);
        }
    }
    if (streams) stream_end();
}

/* A norm's kernel, and what it computes under the kernels' own floating-point mode */
#define FORWARD_KERNEL(ROWS, BODY, CENTRED)                                                                                        \
    NEVER void BODY(const real *x, const real *weight, const real *bias, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols,          \
                    double eps, int far, real *y, double *mean, double *rstd) {                                                    \
        take_rows(x, weight, bias, first, last, cols, eps, far, far == LN_IN_MEMORY && y != x, CENTRED, DTYPE_OF_REAL, y, mean,    \
                  rstd);                                                                                                           \
    }                                                                                                                              \
    static void ROWS(const void *x, const void *weight, const void *bias, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols,         \
                     double eps, int far, void *y, double *mean, double *rstd) {                                                   \
        const fp_mode mode = fp_enter();                                                                                           \
        BODY(x, weight, bias, first, last, cols, eps, far, y, mean, rstd);                                                         \
        fp_leave(mode);                                                                                                            \
    }
FORWARD_KERNEL(forward_rows, forward_body, 1)
FORWARD_KERNEL(forward_rows_rms, forward_body_rms, 0)
#undef FORWARD_KERNEL

#if HAS_HALF
/* Rows that were widened from a half type, into y in that type; x, which is the caller's room, may be written over */
typedef void narrow_body(real *x, const real *weight, const real *bias, ptrdiff_t rows, ptrdiff_t cols, double eps, int streams,
                         void *y, double *mean, double *rstd);
#define NARROW_BODY(BODY, CENTRED, FORMAT)                                                                                         \
    NEVER void BODY(real *x, const real *weight, const real *bias, ptrdiff_t rows, ptrdiff_t cols, double eps, int streams,        \
                    void *y, double *mean, double *rstd) {                                                                         \
        take_rows(x, weight, bias, 0, rows, cols, eps, LN_NEAR, streams, CENTRED, FORMAT, y, mean, rstd);                          \
    }
NARROW_BODY(forward_float16, 1, LN_FLOAT16)
NARROW_BODY(forward_float16_rms, 0, LN_FLOAT16)
NARROW_BODY(forward_bfloat16, 1, LN_BFLOAT16)
NARROW_BODY(forward_bfloat16_rms, 0, LN_BFLOAT16)
#undef NARROW_BODY
#endif

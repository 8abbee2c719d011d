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

/* How the rows of a call are stored: x and y; constants, so that the compiler makes a copy for each. Where x's are no reals, those of the
 * rare rows that need them lie in a room besides, and y has x's format. */
typedef struct {
    int x, y;
} row_formats;
#define ALL_REAL ((row_formats){DTYPE_OF_REAL, DTYPE_OF_REAL})

/* `vectors` vectors of one row of y from column j on, the first n lanes of each; n = W: all lanes */
ALWAYS void normalize(const void *x, const real *weight, const real *bias, ptrdiff_t j, const int vectors, int n, vec minus_hi,
                      vec rest, vec rstd, const int streams, const int centred, const row_formats in, void *y) {
    vec v[VECTORS];
    EACH(k, vectors) v[k] = read_n(element(x, j + k * W, in.x), n, in.x);
    EACH(k, vectors) {
        const vec w = weight ? load_n(weight + j + k * W, n) : rest, b = bias ? load_n(bias + j + k * W, n) : rest;
        v[k] = normalize_vector(v[k], minus_hi, rest, rstd, weight != 0, w, bias != 0, b, centred);
    }
    write_all(place(y, j, in.y), W, v, vectors, n, streams, in.y);
}

/* Columns j … last − 1 of a row; the first `head` of them, which may be none, are taken apart */
ALWAYS void normalize_columns(const void *x, const real *weight, const real *bias, ptrdiff_t j, int head, ptrdiff_t last,
                              real minus_hi_, real rest_, real rstd_, const int streams, const int centred, const row_formats in,
                              void *y) {
    const vec minus_hi = splat(minus_hi_), rest = splat(rest_), rstd = splat(rstd_);
    if (head) normalize(x, weight, bias, j, 1, head, minus_hi, rest, rstd, streams, centred, in, y);
    for (j += head; j + VECTORS * W <= last; j += VECTORS * W) {
        if (streams && in.y == DTYPE_OF_REAL)
            fetch_ahead((const char *)element(x, j, in.x) + AHEAD, VECTORS * W, in.x); /* from memory: a tenth of the time */
        normalize(x, weight, bias, j, VECTORS, W, minus_hi, rest, rstd, streams, centred, in, y);
    }
    for (; j + W <= last; j += W)
        normalize(x, weight, bias, j, 1, W, minus_hi, rest, rstd, streams, centred, in, y);
    if (j < last) normalize(x, weight, bias, j, 1, (int)(last - j), minus_hi, rest, rstd, streams, centred, in, y);
}

/* The compiler's copies of it: weight and bias there or not. */
ALWAYS void normalize_any(const void *x, const real *weight, const real *bias, ptrdiff_t j, int head, ptrdiff_t last, real minus_hi,
                          real rest, real rstd, const int streams, const int centred, const row_formats in, void *y) {
    if (weight && bias)
        normalize_columns(x, weight, bias, j, head, last, minus_hi, rest, rstd, streams, centred, in, y);
    else if (weight)
        normalize_columns(x, weight, 0, j, head, last, minus_hi, rest, rstd, streams, centred, in, y);
    else if (bias)
        normalize_columns(x, 0, bias, j, head, last, minus_hi, rest, rstd, streams, centred, in, y);
    else
        normalize_columns(x, 0, 0, j, head, last, minus_hi, rest, rstd, streams, centred, in, y);
}

/* The few columns of a row that share a line with the row before or after it, through the caches */
ALWAYS void normalize_end(const void *x, const real *weight, const real *bias, ptrdiff_t j, ptrdiff_t last, real minus_hi,
                          real rest, real rstd, const int centred, const row_formats in, void *y) {
    for (; j < last; j += W)
        normalize(x, weight, bias, j, 1, at_most(last - j), splat(minus_hi), splat(rest), splat(rstd), 0, centred, in, y);
}

ALWAYS int most_rows(ptrdiff_t cols, const int format) {
    const ptrdiff_t fit = GROUP_BYTES / (cols * size_in(format));
    return fit < 1 ? 1 : fit > GROUP ? GROUP : (int)fit;
}

/* Columns j … last − 1 of a row, whichever way it goes; the exact way writes all of them when j is 0, from its reals, and over these
 * first where y has none */
ALWAYS void write_columns(const void *x, const real *weight, const real *bias, ptrdiff_t cols, ptrdiff_t j, ptrdiff_t last,
                          const group_stats *s, int r, int streams, const int centred, const row_formats in, real *room, void *y) {
    const real minus_hi = centred ? s->minus_hi[r] : 0, rest = centred ? s->rest[r] : 0, factor = s->factor[r];
    if (!centred) bias = 0; /* there is none: no copies for it */
    if (s->exact[r]) {
        real *reals = in.x == DTYPE_OF_REAL ? (real *)x : room, *own = in.y == DTYPE_OF_REAL ? y : reals;
        if (j == 0) scale_normalize(reals, weight, bias, cols, &s->scaled[r], own);
        if (in.y != DTYPE_OF_REAL) write_run(own, cols, in.y, y, size_in(in.y), 0);
    } else if (streams) {
        const ptrdiff_t size = size_in(in.y), n = last - j;
        const void *to = element(y, j, in.y);
        const int pieces = in.y == DTYPE_OF_REAL && ((uintptr_t)to | (uintptr_t)(n * size)) % 16 == 0;
        const ptrdiff_t from = pieces ? j : j + before_lines(to, n, size), until = pieces ? last : j + end_of_lines(to, n, size);
        const int head = head_in(element(y, from, in.y), until - from, in.y);
        normalize_end(x, weight, bias, j, from, minus_hi, rest, factor, centred, in, y);
        normalize_any(x, weight, bias, from, head, until, minus_hi, rest, factor, 1, centred, in, y);
        normalize_end(x, weight, bias, until, last, minus_hi, rest, factor, centred, in, y);
    } else {
        normalize_any(x, weight, bias, j, 0, last, minus_hi, rest, factor, 0, centred, in, y);
    }
}

/* The same, for the spans after a row's first: one copy of it, out of the way of the rows that have one */
NEVER void write_more(const real *x, const real *weight, const real *bias, ptrdiff_t cols, ptrdiff_t j, ptrdiff_t last,
                      const group_stats *s, int r, int streams, real *y) {
    write_columns(x, weight, bias, cols, j, last, s, r, streams, 1, ALL_REAL, 0, y);
}
NEVER void write_more_rms(const real *x, const real *weight, const real *bias, ptrdiff_t cols, ptrdiff_t j, ptrdiff_t last,
                          const group_stats *s, int r, int streams, real *y) {
    write_columns(x, weight, bias, cols, j, last, s, r, streams, 0, ALL_REAL, 0, y);
}

/* What the caller gets of a group */
ALWAYS void keep_rows(const double *from, int rows, double *to) {
    if (rows == GROUP)
        EACH(i, REGS) store_d(to + i * WD, load_d(from + i * WD));
    else
        for (int r = 0; r < rows; ++r)
            to[r] = from[r];
}

/* room: (GROUP, cols), where x's are no reals */
ALWAYS void take_rows(const void *x, const real *weight, const real *bias, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols,
                      double eps, int far, int streams, const int centred, const row_formats in, real *room, void *y, double *mean,
                      double *rstd) {
    const int most = most_rows(cols, in.x);
    for (ptrdiff_t row = first; row < last; row += most) {
        const int rows = (int)(last - row < most ? last - row : most);
        const void *own = element(x, row * cols, in.x);
        group_stats stats;
        take_statistics(own, in.x, rows, cols, eps, far, centred, room, &stats);
        if (centred && mean) keep_rows(stats.mean, rows, mean + row);
        if (rstd) keep_rows(stats.rstd, rows, rstd + row);
        const ptrdiff_t span = cols < 2 * SPAN || in.y != DTYPE_OF_REAL ? cols : SPAN;
        for (int r = 0; r < rows; ++r)
            write_columns(element(own, r * cols, in.x), weight, bias, cols, 0, span, &stats, r, streams, centred, in,
                          in.x == DTYPE_OF_REAL ? 0 : room + r * cols, place(y, (row + r) * cols, in.y));
        for (ptrdiff_t j = span; j < cols; j += span) {
            for (int r = 0; r < rows; ++r)
                (centred ? write_more : write_more_rms)((const real *)own + r * cols, weight, bias, cols, j,
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
        take_rows(x, weight, bias, first, last, cols, eps, far, far == LN_IN_MEMORY && y != x, CENTRED, ALL_REAL, 0, y, mean,      \
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
/* Rows in a half type, or reals that were made of such, into y in that type. room: (GROUP, cols), or x itself, which may be written over */
typedef void narrow_body(const void *x, const real *weight, const real *bias, ptrdiff_t rows, ptrdiff_t cols, double eps, int far,
                         int streams, real *room, void *y, double *mean, double *rstd);
#define NARROW_BODY(BODY, CENTRED, X, Y)                                                                                           \
    NEVER void BODY(const void *x, const real *weight, const real *bias, ptrdiff_t rows, ptrdiff_t cols, double eps, int far,      \
                    int streams, real *room, void *y, double *mean, double *rstd) {                                                \
        take_rows(x, weight, bias, 0, rows, cols, eps, far, streams, CENTRED, (row_formats){X, Y}, room, y, mean, rstd);           \
    }
NARROW_BODY(forward_float16, 1, LN_FLOAT16, LN_FLOAT16)
NARROW_BODY(forward_float16_rms, 0, LN_FLOAT16, LN_FLOAT16)
NARROW_BODY(forward_bfloat16, 1, LN_BFLOAT16, LN_BFLOAT16)
NARROW_BODY(forward_bfloat16_rms, 0, LN_BFLOAT16, LN_BFLOAT16)
NARROW_BODY(forward_to_float16, 1, DTYPE_OF_REAL, LN_FLOAT16)
NARROW_BODY(forward_to_float16_rms, 0, DTYPE_OF_REAL, LN_FLOAT16)
NARROW_BODY(forward_to_bfloat16, 1, DTYPE_OF_REAL, LN_BFLOAT16)
NARROW_BODY(forward_to_bfloat16_rms, 0, DTYPE_OF_REAL, LN_BFLOAT16)
#undef NARROW_BODY
#endif

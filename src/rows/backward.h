/* backward.h: the row sums, then a strip of rows column by column: dx out, dweight and dbias in registers, added to the block's
 * sums once a strip. */

/* Rows that share one pass over the columns. A strip's float32 terms are added as (r0 + r1) + (r2 + r3) before they are widened:
 * two roundings, what the bounds leave. */
#define STRIP 4

/* One plane of a block's sums, columns j … j + W − 1 (or the first n of them): += t, or = t for the block's first strip. float32
 * terms are added in float64; float64 terms as pairs, the errors `cols` elements on. */
ALWAYS void add_to_block(double *plane, ptrdiff_t cols, vec t, int n, const int fresh) {
#if REAL_IS_F32
    vd half[2];
    (void)cols;
    widen_halves(t, half);
    EACH(i, 2) {
        double *p = plane + i * WD;
        const int m = n - i * WD;
        if (m >= WD)
            store_d(p, fresh ? half[i] : load_d(p) + half[i]);
        else if (m > 0)
            store_part_d(p, fresh ? half[i] : load_part_d(p, m) + half[i], m);
    }
#else
    vd s = {0}, e = {0};
    if (n == W) {
        if (!fresh) {
            s = load_d(plane);
            e = load_d(plane + cols);
        }
        two_sum(&s, &e, t);
        store_d(plane, s);
        store_d(plane + cols, e);
    } else {
        if (!fresh) {
            s = load_part_d(plane, n);
            e = load_part_d(plane + cols, n);
        }
        two_sum(&s, &e, t);
        store_part_d(plane, s, n);
        store_part_d(plane + cols, e, n);
    }
#endif
}

/* Columns j … j + n − 1 of a strip.
 * dx = rstd · (h − mean_h − xhat · mean_h_xhat),   h = dy · weight;   dweight += dy · xhat,   dbias += dy */
ALWAYS void strip_columns(const real *x, const real *dy, const real *weight, const row_gradient *g, ptrdiff_t cols, ptrdiff_t j,
                          int n, const int rows, const int any_exact, const int fresh, const int streams, real *dx, double *sums) {
    const int whole = n == W;
    vec w = splat(1), scaled[STRIP] = {{0}}, plain[STRIP] = {{0}};
    if (weight) w = whole ? load(weight + j) : load_part(weight + j, n);
    EACH(r, STRIP) {
        if (r >= rows) continue;
        const ptrdiff_t at = r * cols + j;
        const vec dy_r = whole ? load(dy + at) : load_part(dy + at, n);
        plain[r] = dy_r;
        vec dx_r;
        if (any_exact && g[r].exact) {
            real dx_part[W] = {0}, term_part[W] = {0};
            scale_columns(x + at, dy + at, weight ? weight + j : 0, n, &g[r], dx_part, term_part);
            dx_r = load(dx_part);
            scaled[r] = load(term_part);
        } else {
            const vec x_r = whole ? load(x + at) : load_part(x + at, n);
            const vec d = (x_r - splat(g[r].hi)) - splat(g[r].lo);
            const vec xhat = d * splat(g[r].rstd);
            const vec h = weight ? dy_r * w : dy_r;
            dx_r = (h * splat(g[r].rstd) - splat(g[r].k1)) - d * splat(g[r].k2);
            scaled[r] = dy_r * xhat;
        }
        if (dx) {
            if (!whole)
                store_part(dx + at, dx_r, n);
            else if (streams)
                stream(dx + at, dx_r);
            else
                store(dx + at, dx_r);
        }
    }
    if (sums) {
        vec dweight = scaled[0], dbias = plain[0];
        if (rows == 2) dweight = scaled[0] + scaled[1], dbias = plain[0] + plain[1];
        if (rows == 3) dweight = (scaled[0] + scaled[1]) + scaled[2], dbias = (plain[0] + plain[1]) + plain[2];
        if (rows == 4)
            dweight = (scaled[0] + scaled[1]) + (scaled[2] + scaled[3]), dbias = (plain[0] + plain[1]) + (plain[2] + plain[3]);
        add_to_block(sums + j, cols, dweight, n, fresh);
        add_to_block(sums + PLANES / 2 * cols + j, cols, dbias, n, fresh);
    }
}

ALWAYS void strip_pass(const real *x, const real *dy, const real *weight, const row_gradient *g, ptrdiff_t cols, const int rows,
                       const int any_exact, const int fresh, const int streams, real *dx, double *sums) {
    ptrdiff_t j = 0;
    for (; j + W <= cols; j += W)
        strip_columns(x, dy, weight, g, cols, j, W, rows, any_exact, fresh, streams, dx, sums);
    if (j < cols) strip_columns(x, dy, weight, g, cols, j, (int)(cols - j), rows, any_exact, fresh, 0, dx, sums);
}

/* The strip as it comes: fewer than STRIP rows, exact rows, no weight, a masked output. */
NEVER void any_strip(const real *x, const real *dy, const real *weight, const row_gradient *g, ptrdiff_t cols, int rows, int fresh,
                     int streams, real *dx, double *sums) {
    strip_pass(x, dy, weight, g, cols, rows, 1, fresh, streams, dx, sums);
}

/* The strip as it mostly is: the compiler's copies for what is constant in it. */
#define WHOLE_STRIP(NAME, FRESH, STREAMS)                                                                                          \
    NEVER void NAME(const real *x, const real *dy, const real *weight, const row_gradient *given, ptrdiff_t cols, real *dx,        \
                    double *sums) {                                                                                                \
        row_gradient g[STRIP];                                                                                                     \
        if (!weight || !dx || !sums) __builtin_unreachable();                                                                      \
        memcpy(g, given, sizeof g);                                                                                                \
        strip_pass(x, dy, weight, g, cols, STRIP, 0, FRESH, STREAMS, dx, sums);                                                    \
    }
WHOLE_STRIP(fresh_strip, 1, 0)
WHOLE_STRIP(next_strip, 0, 0)
WHOLE_STRIP(fresh_stream_strip, 1, 1)
WHOLE_STRIP(next_stream_strip, 0, 1)
#undef WHOLE_STRIP

NEVER void backward_body(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd, ptrdiff_t first,
                         ptrdiff_t last, ptrdiff_t cols, int streams, real *dx, double *sums) {
    /* sums of two strips share their latency while both stay in the second-level cache */
    const int group = cols * (ptrdiff_t)sizeof(real) <= 16384 ? GROUP : STRIP;
    const int aligned = (uintptr_t)dx % LN_BYTES == 0 && cols % W == 0;
    row_gradient g[GROUP];
    streams = streams && aligned;
    for (ptrdiff_t row = first; row < last; row += STRIP) {
        const int rows = (int)(last - row < STRIP ? last - row : STRIP);
        const int at = (int)((row - first) % group);
        const ptrdiff_t from = row * cols;
        if (at == 0) {
            const int some = (int)(last - row < group ? last - row : group);
            take_gradient_sums(x + from, dy + from, weight, mean + row, rstd + row, some, cols, g);
        }
        int any_exact = 0;
        for (int r = 0; r < rows; ++r)
            any_exact |= g[at + r].exact;
        real *dx_from = dx ? dx + from : 0;
        const int fresh = row == first;
        if (any_exact || rows < STRIP || !weight || !dx || !sums)
            any_strip(x + from, dy + from, weight, g + at, cols, rows, fresh, streams, dx_from, sums);
        else if (streams)
            (fresh ? fresh_stream_strip : next_stream_strip)(x + from, dy + from, weight, g + at, cols, dx_from, sums);
        else
            (fresh ? fresh_strip : next_strip)(x + from, dy + from, weight, g + at, cols, dx_from, sums);
    }
    if (streams) stream_end();
}

static void backward_rows(const void *x, const void *dy, const void *weight, const double *mean, const double *rstd,
                          ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int streams, void *dx, double *sums) {
    const fp_mode mode = fp_enter();
    backward_body(x, dy, weight, mean, rstd, first, last, cols, streams, dx, sums);
    fp_leave(mode);
}

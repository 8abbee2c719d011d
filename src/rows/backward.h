/* backward.h: the row sums, then a strip of rows column by column: dx out, the rows' terms of dweight and dbias added to the block's
 * sums once a strip. */

/* Rows whose terms are added as (r0 + r1) + (r2 + r3) before they go to the block's sums: for float32 two roundings, what the bounds
 * leave. They are computed in pairs: four rows' constants are more than 16 registers hold, and where a row's length is a
 * multiple of 4096 bytes the twelve lines of four rows' x, dy and dx would fight for the eight ways of one set of the cache. */
#define STRIP 4
#define PAIR 2
/* Columns for which the first pair's terms wait for the second's: they stay in the first-level cache. */
#define WAITING 256

/* One plane of a block's sums, columns j … j + W − 1 (or the first n of them): += t, or = t for the block's first strip. float32
 * terms are added in float64; float64 terms as pairs, the errors `cols` elements on. */
ALWAYS void add_to_block(double *plane, ptrdiff_t cols, vec t, int n, const int fresh) {
#if REAL_IS_F32
    vd part[PARTS];
    (void)cols;
    widen_parts(t, part);
    EACH(i, PARTS) {
        double *p = plane + i * WD;
        const int m = n - i * WD;
        if (m >= WD)
            store_d(p, fresh ? part[i] : load_d(p) + part[i]);
        else if (m > 0)
            store_part_d(p, fresh ? part[i] : load_part_d(p, m) + part[i], m);
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

/* What the first pair of rows leaves for the second */
typedef struct {
    real dweight[WAITING + W], dbias[WAITING + W];
} pair_terms;

/* A pair's constants in registers */
typedef struct {
    vec hi[PAIR], lo[PAIR], rstd[PAIR], k1[PAIR], k2[PAIR];
} pair_constants;

/* What is the same for every column of a pair; constants of the call, so that the compiler makes a copy for each. */
typedef struct {
    int rows;           /* 1 or 2 */
    int waits, follows; /* its terms go to, are added to, the waiting ones */
    int any_exact, fresh, streams;
} pair_kind;

/* Columns j … j + n − 1 of the pair whose first row is row `at` of the group.
 * dx = rstd · (h − mean_h − xhat · mean_h_xhat),   h = dy · weight;   dweight += dy · xhat,   dbias += dy */
ALWAYS void pair_columns(const real *x, const real *dy, const real *weight, const pair_constants *c, const group_gradient *g,
                         int at, ptrdiff_t cols, ptrdiff_t j, int n, const pair_kind kind, pair_terms *waiting, ptrdiff_t slot,
                         real *dx, double *sums) {
    const int whole = n == W;
    vec w = splat(1), x_r[PAIR], dy_r[PAIR], dx_r[PAIR], term[PAIR];
    /* All loads before all stores: a load behind a store to the same place in another page waits for it. */
    if (weight) w = whole ? load(weight + j) : load_part(weight + j, n);
    EACH(r, kind.rows) {
        const ptrdiff_t k = r * cols + j;
        x_r[r] = whole ? load(x + k) : load_part(x + k, n);
        dy_r[r] = whole ? load(dy + k) : load_part(dy + k, n);
    }
    EACH(r, kind.rows) {
        if (kind.any_exact && g->exact[at + r]) {
            real dx_part[W] = {0}, term_part[W] = {0};
            const ptrdiff_t k = r * cols + j;
            scale_columns(x + k, dy + k, weight ? weight + j : 0, n, &g->rows[at + r], dx_part, term_part);
            dx_r[r] = load(dx_part);
            term[r] = load(term_part);
        } else {
            const vec d = (x_r[r] - c->hi[r]) - c->lo[r];
            const vec h = weight ? dy_r[r] * w : dy_r[r];
            dx_r[r] = (h * c->rstd[r] - c->k1[r]) - d * c->k2[r];
            term[r] = dy_r[r] * (d * c->rstd[r]);
        }
    }
    if (sums) {
        vec dweight = term[0], dbias = dy_r[0];
        if (kind.rows == 2) dweight += term[1], dbias += dy_r[1];
        if (kind.follows) {
            dweight = load(waiting->dweight + slot) + dweight;
            dbias = load(waiting->dbias + slot) + dbias;
        }
        if (kind.waits) {
            store(waiting->dweight + slot, dweight);
            store(waiting->dbias + slot, dbias);
        } else {
            add_to_block(sums + j, cols, dweight, n, kind.fresh);
            add_to_block(sums + PLANES / 2 * cols + j, cols, dbias, n, kind.fresh);
        }
    }
    if (dx) {
        EACH(r, kind.rows) {
            real *p = dx + r * cols + j;
            if (whole)
                write_whole(p, dx_r[r], kind.streams);
            else
                write_part(p, dx_r[r], n, kind.streams);
        }
    }
}

/* Columns first … last − 1 of a pair */
ALWAYS void pair_pass(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                      ptrdiff_t first, ptrdiff_t last, const pair_kind kind, pair_terms *waiting, real *dx, double *sums) {
    pair_constants c;
    EACH(r, kind.rows) {
        c.hi[r] = splat(g->hi[at + r]);
        c.lo[r] = splat(g->lo[at + r]);
        c.rstd[r] = splat(g->rstd[at + r]);
        c.k1[r] = splat(g->k1[at + r]);
        c.k2[r] = splat(g->k2[at + r]);
    }
    ptrdiff_t j = first;
    if (kind.streams && first == 0) {
        j = head_of(dx, last);
        if (j > 0) pair_columns(x, dy, weight, &c, g, at, cols, 0, (int)j, kind, waiting, 0, dx, sums);
    }
    for (; j + W <= last; j += W)
        pair_columns(x, dy, weight, &c, g, at, cols, j, W, kind, waiting, j - first, dx, sums);
    if (j < last) pair_columns(x, dy, weight, &c, g, at, cols, j, (int)(last - j), kind, waiting, j - first, dx, sums);
}

/* All columns of a strip whose first row is row `at` of the group */
ALWAYS void strip_pass(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                       const int rows, const int any_exact, const int fresh, const int streams, real *dx, double *sums) {
    pair_terms waiting;
    const pair_kind only = {rows, 0, 0, any_exact, fresh, streams};
    const pair_kind front = {PAIR, 1, 0, any_exact, fresh, streams}, back = {rows - PAIR, 0, 1, any_exact, fresh, streams};
    if (rows <= PAIR) {
        pair_pass(x, dy, weight, g, at, cols, 0, cols, only, &waiting, dx, sums);
        return;
    }
    const ptrdiff_t second = PAIR * cols;
    const ptrdiff_t head = streams ? head_of(dx, cols) : 0;
    for (ptrdiff_t j = 0, end; j < cols; j = end) {
        end = (j ? j : head) + WAITING;
        if (end > cols) end = cols;
        pair_pass(x, dy, weight, g, at, cols, j, end, front, &waiting, dx, sums);
        pair_pass(x + second, dy + second, weight, g, at + PAIR, cols, j, end, back, &waiting, dx ? dx + second : 0, sums);
    }
}

/* The strip as it comes: fewer than STRIP rows, exact rows, no weight, a masked output. */
NEVER void any_strip(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols, int rows,
                     int any_exact, int fresh, int streams, real *dx, double *sums) {
#define ROWS(N)                                                                                                                    \
    if (rows == N) {                                                                                                               \
        if (any_exact)                                                                                                             \
            strip_pass(x, dy, weight, g, at, cols, N, 1, fresh, streams, dx, sums);                                                \
        else                                                                                                                       \
            strip_pass(x, dy, weight, g, at, cols, N, 0, fresh, streams, dx, sums);                                                \
    }
    ROWS(1)
    ROWS(2)
    ROWS(3)
    ROWS(4)
#undef ROWS
}

/* The strip as it mostly is: the compiler's copies for what is constant in it. */
#define WHOLE_STRIP(NAME, FRESH, STREAMS)                                                                                          \
    NEVER void NAME(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols, real *dx,  \
                    double *sums) {                                                                                                \
        if (!weight || !dx || !sums) __builtin_unreachable();                                                                      \
        strip_pass(x, dy, weight, g, at, cols, STRIP, 0, FRESH, STREAMS, dx, sums);                                                \
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
    group_gradient g;
    streams = streams && cols % W == 0; /* all rows lie alike: one head for every row of a pair */
    for (ptrdiff_t row = first; row < last; row += STRIP) {
        const int rows = (int)(last - row < STRIP ? last - row : STRIP);
        const int at = (int)((row - first) % group);
        const ptrdiff_t from = row * cols;
        if (at == 0) {
            const int some = (int)(last - row < group ? last - row : group);
            take_gradient_sums(x + from, dy + from, weight, mean + row, rstd + row, some, cols, &g);
        }
        int any_exact = 0;
        for (int r = 0; r < rows; ++r)
            any_exact |= (int)g.exact[at + r];
        real *dx_from = dx ? dx + from : 0;
        const int fresh = row == first;
        if (any_exact || rows < STRIP || !weight || !dx || !sums)
            any_strip(x + from, dy + from, weight, &g, at, cols, rows, any_exact, fresh, streams, dx_from, sums);
        else if (streams)
            (fresh ? fresh_stream_strip : next_stream_strip)(x + from, dy + from, weight, &g, at, cols, dx_from, sums);
        else
            (fresh ? fresh_strip : next_strip)(x + from, dy + from, weight, &g, at, cols, dx_from, sums);
    }
    if (streams) stream_end();
}

static void backward_rows(const void *x, const void *dy, const void *weight, const double *mean, const double *rstd,
                          ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int streams, void *dx, double *sums) {
    const fp_mode mode = fp_enter();
    backward_body(x, dy, weight, mean, rstd, first, last, cols, streams, dx, sums);
    fp_leave(mode);
}

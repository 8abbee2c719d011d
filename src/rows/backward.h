/* backward.h: the sums of a group of rows, then its strips, tile of columns after tile of columns, into dx and the block's sums. */

/* Strips of a group */
#define STRIPS (GROUP / STRIP)

/* n columns of a block's sums += the terms of one strip after the other */
ALWAYS void add_columns(const real *terms, const real *more, int n, ptrdiff_t cols, double *sums) {
    block_sum sum = add_sums(load_sum(sums, cols, n), sum_of(load_n_double(terms, n)));
    if (more) sum = add_sums(sum, sum_of(load_n_double(more, n)));
    store_sum(sums, cols, sum, n);
}
ALWAYS void add_terms(const real *terms, const real *more, ptrdiff_t n, ptrdiff_t cols, double *sums) {
    ptrdiff_t j = 0;
    for (; j + WD <= n; j += WD)
        add_columns(terms + j, more ? more + j : 0, WD, cols, sums + j);
    if (j < n) add_columns(terms + j, more ? more + j : 0, (int)(n - j), cols, sums + j);
}

/* The terms of one or two strips for a tile, into the block's sums. A loop of its own: widened in registers, straight from the rows, the
 * same took twice as long. */
ALWAYS void add_tile(const strip_terms *terms, const int strips, const tile *t, ptrdiff_t cols, double *sums) {
    const ptrdiff_t n = t->last - t->first;
    add_terms(terms[0].dweight + t->slot, strips > 1 ? terms[1].dweight + t->slot : 0, n, cols, sums + t->first);
    add_terms(terms[0].dbias + t->slot, strips > 1 ? terms[1].dbias + t->slot : 0, n, cols, sums + PLANES / 2 * cols + t->first);
}

/* A tile of a group as it comes: fewer rows, exact rows, no weight, a masked output. */
NEVER void any_tile(const real *x, const real *dy, const real *weight, const group_gradient *g, int rows, ptrdiff_t cols,
                    const tile *t, int any_exact, int streams, real *dx, double *sums) {
    strip_terms room[STRIPS], *terms = sums ? room : 0;
    int strips = 0;
    for (int at = 0, some; at < rows; at += some, ++strips) {
        const ptrdiff_t from = at * cols;
        some = rows - at < STRIP ? rows - at : STRIP;
#define ROWS(N)                                                                                                                    \
    if (some == N) {                                                                                                               \
        if (any_exact)                                                                                                             \
            compute_strip(x + from, dy + from, weight, g, at, cols, t, N, 2, 1, streams, terms ? terms + strips : 0,               \
                          dx ? dx + from : 0);                                                                                     \
        else                                                                                                                       \
            compute_strip(x + from, dy + from, weight, g, at, cols, t, N, 2, 0, streams, terms ? terms + strips : 0,               \
                          dx ? dx + from : 0);                                                                                     \
    }
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
#undef ROWS
    }
    if (sums) add_tile(room, strips, t, cols, sums);
}

/* A tile of whole strips with all there is: the compiler's copies for what is constant in it. */
ALWAYS void compute_tile(const real *x, const real *dy, const real *weight, const group_gradient *g, int rows, ptrdiff_t cols,
                         const tile *t, const int at_once, const int streams, real *dx, double *sums) {
    strip_terms terms[STRIPS];
    if (!weight || !dx || !sums) __builtin_unreachable();
    for (int at = 0; at < rows; at += STRIP)
        compute_strip(x + at * cols, dy + at * cols, weight, g, at, cols, t, STRIP, at_once, 0, streams, terms + at / STRIP,
                      dx + at * cols);
    if (rows > STRIP)
        add_tile(terms, 2, t, cols, sums);
    else
        add_tile(terms, 1, t, cols, sums);
}
typedef void tile_pass(const real *x, const real *dy, const real *weight, const group_gradient *g, int rows, ptrdiff_t cols,
                       const tile *t, real *dx, double *sums);
#define TILE_PASS(NAME, ROWS_AT_ONCE, STREAMS)                                                                                     \
    NEVER void NAME(const real *x, const real *dy, const real *weight, const group_gradient *g, int rows, ptrdiff_t cols,          \
                    const tile *t, real *dx, double *sums) {                                                                       \
        compute_tile(x, dy, weight, g, rows, cols, t, ROWS_AT_ONCE, STREAMS, dx, sums);                                            \
    }
TILE_PASS(whole_tile, AT_ONCE, 0)
TILE_PASS(stream_tile, AT_ONCE, 1)
TILE_PASS(crowded_tile, 2, 0)
TILE_PASS(crowded_stream_tile, 2, 1)
#undef TILE_PASS

/* Where rows lie a multiple of 4096 bytes apart, the lines of four rows' x, dy and dx fight for the eight ways of one set of the
 * first-level cache. */
ALWAYS tile_pass *choose_pass(ptrdiff_t cols, int streams) {
    if (cols * (ptrdiff_t)sizeof(real) % 4096 == 0) return streams ? crowded_stream_tile : crowded_tile;
    return streams ? stream_tile : whole_tile;
}

NEVER void backward_body(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd, ptrdiff_t first,
                         ptrdiff_t last, ptrdiff_t cols, int far, real *dx, double *sums) {
    const int most = cols <= GROUP_COLUMNS ? GROUP : STRIP;
    const int alike = cols % W == 0; /* all rows lie alike: one head for every row */
    const int streams = far == 2 && alike && dx && dx != x && dx != dy;
    const int head = alike && (streams || cols >= HEAD_COLUMNS) ? head_of((dx ? dx : x) + first * cols, cols) : 0;
    tile_pass *const pass = choose_pass(cols, streams);
    group_gradient g;
    if (sums) memset(sums, 0, (size_t)(PLANES * cols) * sizeof *sums);
    for (ptrdiff_t row = first; row < last; row += most) {
        const int rows = (int)(last - row < most ? last - row : most);
        const ptrdiff_t from = row * cols;
        const int any_exact = take_gradient(x + from, dy + from, weight, mean + row, rstd + row, rows, cols, far, &g);
        tile t = {0, 0, head, (W - head) % W};
        while (t.last < cols) {
            t.first = t.last;
            t.last = cols - t.first - t.head < TILE ? cols : t.first + t.head + TILE;
            if (any_exact || rows % STRIP || !weight || !dx || !sums)
                any_tile(x + from, dy + from, weight, &g, rows, cols, &t, any_exact, streams, dx ? dx + from : 0, sums);
            else
                pass(x + from, dy + from, weight, &g, rows, cols, &t, dx + from, sums);
            t.head = t.slot = 0;
        }
    }
    if (streams) stream_end();
}

static void backward_rows(const void *x, const void *dy, const void *weight, const double *mean, const double *rstd,
                          ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int far, void *dx, double *sums) {
    const fp_mode mode = fp_enter();
    backward_body(x, dy, weight, mean, rstd, first, last, cols, far, dx, sums);
    fp_leave(mode);
}

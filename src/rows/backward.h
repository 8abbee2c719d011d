/* backward.h: the sums of a group of rows, then its strips, tile of columns after tile of columns, into dx and the block's sums. */

/* n columns of a block's sums += terms */
ALWAYS void add_terms(const real *terms, ptrdiff_t n, ptrdiff_t cols, double *sums) {
    ptrdiff_t j = 0;
    for (; j + WD <= n; j += WD)
        store_sum(sums + j, cols, add_sums(load_sum(sums + j, cols, WD), sum_of(load_double(terms + j))), WD);
    if (j < n) {
        const int some = (int)(n - j);
        store_sum(sums + j, cols, add_sums(load_sum(sums + j, cols, some), sum_of(load_part_double(terms + j, some))), some);
    }
}

/* Columns first … last − 1 (at most a tile) of the strip whose first row is row `at` of the group */
ALWAYS void strip_pass(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                       ptrdiff_t first, ptrdiff_t last, const int rows, const int any_exact, const int streams, real *dx,
                       double *sums) {
    strip_terms room, *terms = sums ? &room : 0;
    const ptrdiff_t second = PAIR * cols;
    const int front = rows > PAIR ? PAIR : rows, back = rows - front;
    pair_pass(x, dy, weight, g, at, cols, first, last, (pair_kind){front, 0, any_exact, streams}, terms, dx);
    if (back)
        pair_pass(x + second, dy + second, weight, g, at + PAIR, cols, first, last, (pair_kind){back, 1, any_exact, streams}, terms,
                  dx ? dx + second : 0);
    /* A loop of its own: widened in registers, straight from the rows, the same took twice as long. */
    if (sums) {
        add_terms(terms->dweight, last - first, cols, sums + first);
        add_terms(terms->dbias, last - first, cols, sums + PLANES / 2 * cols + first);
    }
}

/* The strip as it comes: fewer than STRIP rows, exact rows, no weight, a masked output. */
NEVER void any_strip(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                     ptrdiff_t first, ptrdiff_t last, int rows, int any_exact, int streams, real *dx, double *sums) {
#define ROWS(N)                                                                                                                    \
    if (rows == N) {                                                                                                               \
        if (any_exact)                                                                                                             \
            strip_pass(x, dy, weight, g, at, cols, first, last, N, 1, streams, dx, sums);                                          \
        else                                                                                                                       \
            strip_pass(x, dy, weight, g, at, cols, first, last, N, 0, streams, dx, sums);                                          \
    }
    ROWS(1)
    ROWS(2)
    ROWS(3)
    ROWS(4)
#undef ROWS
}

/* The strip as it mostly is: the compiler's copies for what is constant in it. */
NEVER void whole_strip(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                       ptrdiff_t first, ptrdiff_t last, real *dx, double *sums) {
    if (!weight || !dx || !sums) __builtin_unreachable();
    strip_pass(x, dy, weight, g, at, cols, first, last, STRIP, 0, 0, dx, sums);
}
NEVER void stream_strip(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                        ptrdiff_t first, ptrdiff_t last, real *dx, double *sums) {
    if (!weight || !dx || !sums) __builtin_unreachable();
    strip_pass(x, dy, weight, g, at, cols, first, last, STRIP, 0, 1, dx, sums);
}

NEVER void backward_body(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd, ptrdiff_t first,
                         ptrdiff_t last, ptrdiff_t cols, int streams, real *dx, double *sums) {
    const int most = cols <= GROUP_COLUMNS ? GROUP : STRIP;
    streams = streams && cols % W == 0; /* all rows lie alike: one head for every row of a pair */
    const ptrdiff_t head = dx && streams ? head_of(dx + first * cols, cols) : 0;
    group_gradient g;
    if (sums) memset(sums, 0, (size_t)(PLANES * cols) * sizeof *sums);
    for (ptrdiff_t row = first; row < last; row += most) {
        const int rows = (int)(last - row < most ? last - row : most);
        const ptrdiff_t from = row * cols;
        const int any_exact = take_gradient(x + from, dy + from, weight, mean + row, rstd + row, rows, cols, &g);
        for (ptrdiff_t j = 0, end; j < cols; j = end) {
            end = (j ? j : head) + TILE;
            if (end > cols) end = cols;
            for (int at = 0; at < rows; at += STRIP) {
                const real *x_at = x + from + at * cols, *dy_at = dy + from + at * cols;
                real *dx_at = dx ? dx + from + at * cols : 0;
                const int some = rows - at < STRIP ? rows - at : STRIP;
                if (any_exact || some < STRIP || !weight || !dx || !sums)
                    any_strip(x_at, dy_at, weight, &g, at, cols, j, end, some, any_exact, streams, dx_at, sums);
                else
                    (streams ? stream_strip : whole_strip)(x_at, dy_at, weight, &g, at, cols, j, end, dx_at, sums);
            }
        }
    }
    if (streams) stream_end();
}

static void backward_rows(const void *x, const void *dy, const void *weight, const double *mean, const double *rstd,
                          ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int streams, void *dx, double *sums) {
    const fp_mode mode = fp_enter();
    backward_body(x, dy, weight, mean, rstd, first, last, cols, streams, dx, sums);
    fp_leave(mode);
}

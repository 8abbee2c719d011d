/* tiles.h: a tile of columns of a group of rows: its strips, in the way that is quickest, and their terms into the block's sums. Knows
 * alignment. Does not know blocks. */

/* Strips of a group */
#define STRIPS (GROUP / STRIP)
/* The fewest columns whose first are taken apart for the others' alignment: from there on it saves up to a tenth, and below it costs as
 * much (a quarter at 128 columns of float32, AVX2). Registers as long as a line suffer most. */
#define HEAD_COLUMNS ((LN_BYTES == LINE ? 16 : 64) * W)

/* n columns of a block's sums += the terms of one strip after the other; begins: = */
ALWAYS void add_columns(const real *terms, const real *more, int n, ptrdiff_t pitch, const int begins, double *sums) {
    const vd first = load_n_double(terms, n);
    block_sum sum = begins ? sum_of(first) : add_terms(load_sum(sums, pitch, n), first);
    if (more) sum = add_terms(sum, load_n_double(more, n));
    store_sum(sums, pitch, sum, n);
}
ALWAYS void add_all_columns(const real *terms, const real *more, ptrdiff_t n, ptrdiff_t pitch, const int begins, double *sums) {
    ptrdiff_t j = 0;
    for (; j <= n - 4 * WD; j += 4 * WD)
        EACH(k, 4) add_columns(terms + j + k * WD, more ? more + j + k * WD : 0, WD, pitch, begins, sums + j + k * WD);
    for (; j <= n - WD; j += WD)
        add_columns(terms + j, more ? more + j : 0, WD, pitch, begins, sums + j);
    if (j < n) add_columns(terms + j, more ? more + j : 0, (int)(n - j), pitch, begins, sums + j);
}

/* The terms of one or two strips for a tile, into the block's sums. A loop of its own: widened in registers, straight from the rows, the
 * same took twice as long. */
ALWAYS void add_terms_of_tile(const strip_terms *terms, const int strips, const tile *t, const int begins, double *sums) {
    const ptrdiff_t n = t->last - t->first;
    add_all_columns(terms[0].dweight + t->slot, strips > 1 ? terms[1].dweight + t->slot : 0, n, t->pitch, begins, sums + t->at);
    if (t->biased)
        add_all_columns(terms[0].dbias + t->slot, strips > 1 ? terms[1].dbias + t->slot : 0, n, t->pitch, begins,
                        sums + PLANES / 2 * t->pitch + t->at);
}
NEVER void begin_tile(const strip_terms *terms, int strips, const tile *t, double *sums) {
    add_terms_of_tile(terms, strips, t, 1, sums);
}
ALWAYS void add_tile(const strip_terms *terms, const int strips, const tile *t, double *sums) {
    if (t->begins)
        begin_tile(terms, strips, t, sums);
    else
        add_terms_of_tile(terms, strips, t, 0, sums);
}

/* A tile of a group as it comes: fewer rows, exact rows, no weight, a masked output. */
NEVER void any_tile(const real *x, const real *dy, const real *weight, const group_gradient *g, int rows, ptrdiff_t cols,
                    const tile *t, int any_exact, int writing, real *dx, double *sums) {
    strip_terms room[STRIPS], *terms = sums ? room : 0;
    int strips = 0;
    for (int at = 0, some; at < rows; at += some, ++strips) {
        const ptrdiff_t from = at * cols;
        some = rows - at < STRIP ? rows - at : STRIP;
        compute_strip(x + from, dy + from, weight, g, at, cols, t, some, PAIR, 1, any_exact, writing, DTYPE_OF_REAL,
                      terms ? terms + strips : 0, dx ? dx + from : 0);
    }
    if (sums) add_tile(room, strips, t, sums);
}

/* A tile of whole strips with all there is: the compiler's copies for what is constant in it. */
ALWAYS void compute_tile(const void *x, const void *dy, const real *weight, const group_gradient *g, int rows, ptrdiff_t cols,
                         const tile *t, const int at_once, const int writing, const int format, void *dx, double *sums) {
    strip_terms terms[STRIPS];
    if (!weight || !dx || !sums) __builtin_unreachable();
    for (int at = 0; at < rows; at += STRIP)
        compute_strip(element(x, at * cols, format), element(dy, at * cols, format), weight, g, at, cols, t, STRIP, at_once, 0, 0,
                      writing, format, terms + at / STRIP, place(dx, at * cols, format));
    if (rows > STRIP)
        add_tile(terms, 2, t, sums);
    else
        add_tile(terms, 1, t, sums);
}
typedef void tile_pass(const void *x, const void *dy, const real *weight, const group_gradient *g, int rows, ptrdiff_t cols,
                       const tile *t, void *dx, double *sums);
#define TILE_PASS(NAME, ROWS_AT_ONCE, WRITING, FORMAT)                                                                             \
    NEVER void NAME(const void *x, const void *dy, const real *weight, const group_gradient *g, int rows, ptrdiff_t cols,          \
                    const tile *t, void *dx, double *sums) {                                                                       \
        compute_tile(x, dy, weight, g, rows, cols, t, ROWS_AT_ONCE, WRITING, FORMAT, dx, sums);                                    \
    }
TILE_PASS(whole_tile, AT_ONCE, STORED, DTYPE_OF_REAL)
TILE_PASS(stream_tile, AT_ONCE, STREAMED, DTYPE_OF_REAL)
TILE_PASS(crowded_tile, PAIR, STORED, DTYPE_OF_REAL)
TILE_PASS(crowded_stream_tile, PAIR, STREAMED, DTYPE_OF_REAL)
TILE_PASS(staged_tile, PAIR, STAGED, DTYPE_OF_REAL)
#if HAS_HALF
TILE_PASS(whole_float16_tile, AT_ONCE, STORED, LN_FLOAT16)
TILE_PASS(staged_float16_tile, PAIR, STAGED, LN_FLOAT16)
TILE_PASS(whole_bfloat16_tile, AT_ONCE, STORED, LN_BFLOAT16)
TILE_PASS(staged_bfloat16_tile, PAIR, STAGED, LN_BFLOAT16)
#endif
#undef TILE_PASS

/* Where rows lie a multiple of 4096 bytes apart, the lines of four rows' x, dy and dx fight for the eight ways of one set of the
 * first-level cache. */
ALWAYS tile_pass *choose_pass(ptrdiff_t cols, int writing, const int format) {
#if HAS_HALF
    if (format == LN_FLOAT16) return writing == STAGED ? staged_float16_tile : whole_float16_tile;
    if (format == LN_BFLOAT16) return writing == STAGED ? staged_bfloat16_tile : whole_bfloat16_tile;
#endif
    if (writing == STAGED) return staged_tile;
    if (cols * (ptrdiff_t)sizeof(real) % 4096 == 0) return writing == STREAMED ? crowded_stream_tile : crowded_tile;
    return writing == STREAMED ? stream_tile : whole_tile;
}

/* Whether loads from a wait for streamed stores to dx (strip.h): where two rows of dx that are computed with a row of a lie a few lines ahead
 * of it, each in its page, or another row than its own less than a line. One row costs no more than staging does. */
ALWAYS int waits_for(const real *dx, const real *a, ptrdiff_t cols) {
    enum { PAGE = 4096, FEW_LINES = 4 * LINE };
    int rows = 0;
    for (ptrdiff_t apart = 1 - AT_ONCE; apart < AT_ONCE; ++apart) {
        const uintptr_t ahead = ((uintptr_t)dx - (uintptr_t)a + (uintptr_t)(apart * cols) * sizeof(real)) % PAGE;
        if (ahead > 0 && ahead < FEW_LINES) rows += apart != 0 && ahead < LINE ? 2 : 1;
    }
    return rows > 1;
}

/* How the columns of a call's rows are taken */
typedef struct {
    tile_pass *pass;
    int writing;
    ptrdiff_t cols;
} columns_plan;

ALWAYS columns_plan plan_columns(const void *x, const void *dy, const void *dx, ptrdiff_t cols, int far, const int format) {
    const int alike = cols % W == 0; /* all rows lie alike: one head for every row */
    const int past = far == LN_IN_MEMORY && dx && dx != x && dx != dy;
    const int staged = past && (format != DTYPE_OF_REAL || !alike || waits_for(dx, x, cols) || waits_for(dx, dy, cols));
    const int writing = staged ? STAGED : past ? STREAMED : STORED;
    return (columns_plan){choose_pass(cols, writing, format), writing, cols};
}

/* The columns before the first whose dx, or x, is aligned in all rows, where they lie alike, or whose dx begins a line that is streamed;
 * 0 where that is not worth it */
ALWAYS int head_of_rows(const void *x, const void *dx, const columns_plan *plan, ptrdiff_t width, const int format) {
    if (plan->writing == STAGED && plan->cols * size_in(format) % LINE == 0) return (int)before_lines(dx, width, size_in(format));
    const int worth = format == DTYPE_OF_REAL && plan->cols % W == 0 && (plan->writing != STORED || width >= HEAD_COLUMNS);
    return worth ? head_of(dx ? dx : x, width) : 0;
}

/* Whether a group has whole strips, all there is, and no exact row */
ALWAYS int is_usual(const real *weight, const group_gradient *g, int rows, const void *dx, const double *sums) {
    return !g->any_exact && rows % STRIP == 0 && weight && dx && sums;
}

/* A tile of a group; a usual one, where they are no reals */
ALWAYS void compute_group(const void *x, const void *dy, const int format, const real *weight, const group_gradient *g, int rows,
                          const tile *t, const columns_plan *plan, void *dx, double *sums) {
    if (format == DTYPE_OF_REAL && !is_usual(weight, g, rows, dx, sums))
        any_tile(x, dy, weight, g, rows, plan->cols, t, g->any_exact, plan->writing, dx, sums);
    else
        plan->pass(x, dy, weight, g, rows, plan->cols, t, dx, sums);
}

/* The first tile of columns first … last − 1, and the one after; their sums lie at `at` and on, in planes of `pitch` columns */
ALWAYS tile first_tile(ptrdiff_t first, ptrdiff_t last, int head, ptrdiff_t at, ptrdiff_t pitch, int biased, ptrdiff_t ahead) {
    return (tile){first, last - first - head < TILE ? last : first + head + TILE, head, (W - head % W) % W, at, pitch, biased, 0,
                  ahead};
}
ALWAYS void advance(tile *t, ptrdiff_t last) {
    t->at += t->last - t->first;
    t->first = t->last;
    t->last = last - t->first < TILE ? last : t->first + TILE;
    t->head = t->slot = 0;
}

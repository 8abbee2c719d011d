/* backward.h: the sums of a group of rows, then its strips, tile of columns after tile of columns, into dx and the block's sums. */

/* Strips of a group */
#define STRIPS (GROUP / STRIP)
/* The longest rows that are taken in whole groups: a group's x and dy are read twice, and stay in the second-level cache between. */
#define GROUP_COLUMNS (16384 / (ptrdiff_t)sizeof(real))
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

/* A group's constants */
ALWAYS constants_pass *choose_gradient(const int centred, const int format) {
#if HAS_HALF
    if (format == LN_FLOAT16) return centred ? take_gradient_float16 : take_gradient_float16_rms;
    if (format == LN_BFLOAT16) return centred ? take_gradient_bfloat16 : take_gradient_bfloat16_rms;
#endif
    return centred ? take_gradient : take_gradient_rms;
}

/* A group in a half type that is no usual one: widened, and its dx narrowed. room: (3, rows, cols) */
NEVER void compute_widened(const void *x, const void *dy, const int format, const real *weight, const group_gradient *g, int rows,
                           ptrdiff_t cols, tile t, real *room, void *dx, double *sums) {
    real *own_x = room, *own_dy = room + rows * cols, *own_dx = dx ? room + 2 * rows * cols : 0;
    read_run(x, 2, format, rows * cols, 0, own_x);
    read_run(dy, 2, format, rows * cols, 0, own_dy);
    for (; t.first < cols; advance(&t, cols))
        any_tile(own_x, own_dy, weight, g, rows, cols, &t, g->any_exact, STORED, own_dx, sums);
    if (dx) write_run(own_dx, rows * cols, format, dx, 2, 0);
}

/* begins: sums are put, not added to. room: three groups of rows, where x, dy and dx are no reals */
ALWAYS void differentiate_rows(const void *x, const void *dy, const int format, const real *weight, const double *mean,
                               const double *rstd, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int far, int begins,
                               const int centred, real *room, void *dx, double *sums) {
    const int most = cols <= GROUP_COLUMNS ? GROUP : STRIP;
    const columns_plan plan = plan_columns(x, dy, dx, cols, far, format);
    const int head = head_of_rows(element(x, first * cols, format), dx ? place(dx, first * cols, format) : 0, &plan, cols, format);
    /* the next group's rows; of a strip of rows that are too long for that, what comes next in them */
    const ptrdiff_t ahead = most == GROUP ? GROUP * cols : AHEAD / size_in(format);
    group_gradient g;
    if (sums && begins && !centred) memset(sums + PLANES / 2 * cols, 0, (size_t)(PLANES / 2 * cols) * sizeof *sums);
    for (ptrdiff_t row = first; row < last; row += most) {
        const int rows = (int)(last - row < most ? last - row : most);
        const void *own_x = element(x, row * cols, format), *own_dy = element(dy, row * cols, format);
        void *own_dx = dx ? place(dx, row * cols, format) : 0;
        choose_gradient(centred, format)(own_x, own_dy, weight, centred ? mean + row : 0, rstd + row, rows, cols, far, dx != 0,
                                         room, &g);
        tile t = first_tile(0, cols, head, 0, cols, centred, ahead);
        t.begins = begins && row == first;
        if (format != DTYPE_OF_REAL && !is_usual(weight, &g, rows, dx, sums)) {
            compute_widened(own_x, own_dy, format, weight, &g, rows, cols, t, room, own_dx, sums);
            continue;
        }
        for (; t.first < cols; advance(&t, cols))
            compute_group(own_x, own_dy, format, weight, &g, rows, &t, &plan, own_dx, sums);
    }
    if (plan.writing != STORED) stream_end();
}

#define BACKWARD_KERNEL(ROWS, BODY, CENTRED)                                                                                       \
    NEVER void BODY(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd, ptrdiff_t first,    \
                    ptrdiff_t last, ptrdiff_t cols, int far, int begins, real *dx, double *sums) {                                 \
        differentiate_rows(x, dy, DTYPE_OF_REAL, weight, mean, rstd, first, last, cols, far, begins, CENTRED, 0, dx, sums);        \
    }                                                                                                                              \
    static void ROWS(const void *x, const void *dy, const void *weight, const double *mean, const double *rstd, ptrdiff_t first,   \
                     ptrdiff_t last, ptrdiff_t cols, int far, void *dx, double *sums) {                                            \
        const fp_mode mode = fp_enter();                                                                                           \
        BODY(x, dy, weight, mean, rstd, first, last, cols, far, 1, dx, sums);                                                      \
        fp_leave(mode);                                                                                                            \
    }
BACKWARD_KERNEL(backward_rows, backward_body, 1)
BACKWARD_KERNEL(backward_rows_rms, backward_body_rms, 0)
#undef BACKWARD_KERNEL

#if HAS_HALF
/* The same in a half type; room: three groups of rows */
typedef void half_body(const void *x, const void *dy, const real *weight, const double *mean, const double *rstd, ptrdiff_t rows,
                       ptrdiff_t cols, int far, real *room, void *dx, double *sums);
#define HALF_BODY(BODY, CENTRED, FORMAT)                                                                                           \
    NEVER void BODY(const void *x, const void *dy, const real *weight, const double *mean, const double *rstd, ptrdiff_t rows,     \
                    ptrdiff_t cols, int far, real *room, void *dx, double *sums) {                                                 \
        differentiate_rows(x, dy, FORMAT, weight, mean, rstd, 0, rows, cols, far, 1, CENTRED, room, dx, sums);                     \
    }
HALF_BODY(backward_float16, 1, LN_FLOAT16)
HALF_BODY(backward_float16_rms, 0, LN_FLOAT16)
HALF_BODY(backward_bfloat16, 1, LN_BFLOAT16)
HALF_BODY(backward_bfloat16_rms, 0, LN_BFLOAT16)
#undef HALF_BODY
#endif

/* The same in two steps, for rows that are too long for the caches: first all rows' constants, group after group, ... */
ALWAYS void take_constants(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd,
                           ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int far, int wanted, const int centred,
                           group_gradient *g) {
    for (ptrdiff_t row = first; row < last; row += GROUP)
        (centred ? take_gradient : take_gradient_rms)(x + row * cols, dy + row * cols, weight, centred ? mean + row : 0, rstd + row,
                                                      (int)(last - row < GROUP ? last - row : GROUP), cols, far, wanted, 0,
                                                      &g[row / GROUP]);
}
#define CONSTANTS_KERNEL(ROWS, BODY, CENTRED)                                                                                      \
    NEVER void BODY(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd, ptrdiff_t first,    \
                    ptrdiff_t last, ptrdiff_t cols, int far, int wanted, group_gradient *g) {                                      \
        take_constants(x, dy, weight, mean, rstd, first, last, cols, far, wanted, CENTRED, g);                                     \
    }                                                                                                                              \
    static void ROWS(const void *x, const void *dy, const void *weight, const double *mean, const double *rstd, ptrdiff_t first,   \
                     ptrdiff_t last, ptrdiff_t cols, int far, int wanted, void *constants) {                                       \
        const fp_mode mode = fp_enter();                                                                                           \
        BODY(x, dy, weight, mean, rstd, first, last, cols, far, wanted, constants);                                                \
        fp_leave(mode);                                                                                                            \
    }
CONSTANTS_KERNEL(backward_constants, constants_body, 1)
CONSTANTS_KERNEL(backward_constants_rms, constants_body_rms, 0)
#undef CONSTANTS_KERNEL

/* ... then their columns, range after range: into sums that other rows add to as well, or, without sums, dweight and dbias at once */
NEVER void columns_body(const real *x, const real *dy, const real *weight, const group_gradient *g, ptrdiff_t rows, ptrdiff_t first,
                        ptrdiff_t last, ptrdiff_t cols, int far, int begins, real *dx, double *sums, real *dweight, real *dbias) {
    enum { ROOM = TILE + MOST_IN_LINE };
    const columns_plan plan = plan_columns(x, dy, dx, cols, far, DTYPE_OF_REAL);
    const int head = head_of_rows(x + first, dx ? dx + first : 0, &plan, last - first, DTYPE_OF_REAL);
    const int whole = !sums && (dweight || dbias);
    double room[PLANES * ROOM];
    tile t = whole ? first_tile(first, last, head, 0, ROOM, dbias != 0, GROUP * cols)
                   : first_tile(first, last, head, first, cols, 1, GROUP * cols);
    for (; t.first < last; advance(&t, last)) {
        if (whole) t.at = 0;
        for (ptrdiff_t row = 0; row < rows; row += GROUP) {
            t.begins = row == 0 && (whole || begins);
            compute_group(x + row * cols, dy + row * cols, DTYPE_OF_REAL, weight, &g[row / GROUP],
                          (int)(rows - row < GROUP ? rows - row : GROUP), &t, &plan, dx ? dx + row * cols : 0, whole ? room : sums);
        }
        if (whole) {
            if (dweight) fold_plane(room, 1, 0, t.last - t.first, ROOM, dweight + t.first);
            if (dbias) fold_plane(room + PLANES / 2 * ROOM, 1, 0, t.last - t.first, ROOM, dbias + t.first);
        }
    }
    if (plan.writing != STORED) stream_end();
}

static void backward_columns(const void *x, const void *dy, const void *weight, const void *constants, ptrdiff_t rows,
                             ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int far, int begins, void *dx, double *sums,
                             void *dweight, void *dbias) {
    const fp_mode mode = fp_enter();
    columns_body(x, dy, weight, constants, rows, first, last, cols, far, begins, dx, sums, dweight, dbias);
    fp_leave(mode);
}

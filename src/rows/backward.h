/* backward.h: the sums of a group of rows, then its strips, tile of columns after tile of columns, into dx and the block's sums. */

/* The longest rows that are taken in whole groups: a group's x and dy are read twice, and stay in the second-level cache between. */
#define GROUP_COLUMNS (16384 / (ptrdiff_t)sizeof(real))

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

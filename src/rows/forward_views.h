/* forward_views.h: the forward pass over views: rows gathered, the residual added, what a mask hides left out, y scattered. Knows which
 * rows go together. Does not know arithmetic. */

/* to = a + b, and past the caches to `past`, which may be NULL; ahead, if not 0: how many bytes on what will be read next is fetched */
NEVER void add_row(const real *a, const real *b, ptrdiff_t cols, ptrdiff_t ahead, real *to, real *past) {
    const int head = past ? head_of(past, cols) : 0;
    for (ptrdiff_t j = 0, n; j < cols; j += n) {
        n = j == 0 && head ? head : cols - j < W ? cols - j : W;
        if (ahead) {
            fetch((const char *)(a + j) + ahead);
            fetch((const char *)(b + j) + ahead);
        }
        const vec sum = load_n(a + j, (int)n) + load_n(b + j, (int)n);
        store_n(to + j, sum, (int)n);
        if (past) write_n(past + j, sum, (int)n, 1);
    }
}

/* x + residual of rows first … last − 1, rounded to what is stored, which goes to plan->sum. Returned: where it lies, room or there. */
ALWAYS const real *sums_of(const ln_forward_plan *plan, const real *x, ptrdiff_t first, ptrdiff_t last, real *room,
                           real *row_room) {
    const ptrdiff_t cols = plan->cols;
    const ln_view *sum = &plan->sum, *residual = &plan->residual;
    const int direct = are_direct(sum, cols);
    const int streams = direct && plan->far == LN_IN_MEMORY && !is_same(sum, &plan->x) && !is_same(sum, residual);
    real *to = direct && !streams ? (real *)row_of(sum, first) : room;
    const ptrdiff_t together = are_direct(residual, cols) ? last - first : 1; /* rows that are added as if they were one */
    for (ptrdiff_t row = first; row < last; row += together) {
        const real *b = (const real *)row_of(residual, row);
        if (!is_direct(residual)) {
            gather_row(residual, (char *)b, row_room);
            b = row_room;
        }
        add_row(x + (row - first) * cols, b, together * cols, plan->far ? (last - first) * cols * (ptrdiff_t)sizeof(real) : 0,
                to + (row - first) * cols, streams ? (real *)row_of(sum, row) : 0);
    }
    if (!direct) {
        scatter_rows(sum, to, first, last, cols, 0);
        if (sum->dtype != DTYPE_OF_REAL) return rows_of(sum, first, last, cols, LN_NEAR, room); /* as it was rounded */
    }
    return to;
}

/* What a mask needs beside the rows' own room */
typedef struct {
    uint8_t *mask;              /* (cols,)                                  */
    real *rows, *weight, *bias; /* packed: (rows, cols), (cols,), (cols,)   */
} mask_room;

/* `rows` rows from plan's row `row` on, of one weight, bias and mask */
ALWAYS void normalize_masked(const ln_forward_plan *plan, const real *x, const real *weight, const real *bias, ptrdiff_t row,
                             ptrdiff_t rows, const uint8_t *mask, int far, const int centred, const mask_room *room, real *y) {
    const ptrdiff_t cols = plan->cols;
    const mask_shape shape = survey_mask(mask, cols);
    double *mean = plan->mean ? plan->mean + row : 0, *rstd = plan->rstd ? plan->rstd + row : 0;
    if (shape.live == 0) { /* as of a row of zeros */
        const vd empty = 1.0 / root(splat_d(plan->eps));
        memset(y, 0, (size_t)(rows * cols) * sizeof *y);
        for (ptrdiff_t r = 0; r < rows; ++r) {
            if (centred && mean) mean[r] = 0;
            if (rstd) rstd[r] = empty[0];
        }
        return;
    }
    const int whole = shape.live == cols, packs = !whole && !(shape.leading && rows == 1);
    if (!whole && !shape.leading) {
        if (weight) pack_row(weight, mask, cols, room->weight), weight = room->weight;
        if (bias) pack_row(bias, mask, cols, room->bias), bias = room->bias;
    }
    const real *from = x;
    if (packs) {
        for (ptrdiff_t r = 0; r < rows; ++r)
            pack_row(x + r * cols, mask, cols, room->rows + r * shape.live);
        from = room->rows;
    }
    (centred ? forward_body : forward_body_rms)(from, weight, bias, 0, rows, shape.live, plan->eps, whole ? far : LN_NEAR,
                                                packs ? room->rows : y, mean, rstd);
    if (packs) {
        for (ptrdiff_t r = 0; r < rows; ++r)
            unpack_row(room->rows + r * shape.live, mask, cols, y + r * cols);
    } else {
        memset(y + shape.live, 0, (size_t)(cols - shape.live) * sizeof *y); /* nothing where whole: rows may be many */
    }
}

/* Whether rows can be rounded to y's half type as they are computed: they lie side by side, and past the caches only whole half registers
 * go, or hardly anything else: what is short of them costs three times as much as all else. */
enum { STREAMED_COLUMNS = 1024 };
ALWAYS int can_narrow(const ln_view *y, ptrdiff_t row, ptrdiff_t cols, int streams) {
    const int whole = cols % W == 0 && (uintptr_t)row_of(y, row) % (LN_BYTES / 2) == 0;
    return y->dtype != DTYPE_OF_REAL && are_side_by_side(y, cols) && (!streams || whole || cols >= STREAMED_COLUMNS);
}

/* `rows` rows into y as they are rounded to its half type: x's own, which are of that type as well, or reals in the room */
ALWAYS void normalize_narrow(const ln_forward_plan *plan, const void *x, const int is_half, const real *weight, const real *bias,
                             ptrdiff_t row, ptrdiff_t rows, int streams, const int centred, real *room) {
#if HAS_HALF
    double *mean = plan->mean ? plan->mean + row : 0, *rstd = plan->rstd ? plan->rstd + row : 0;
    narrow_body *const from_half[2][2] = {{forward_float16_rms, forward_float16}, {forward_bfloat16_rms, forward_bfloat16}};
    narrow_body *const from_real[2][2] = {{forward_to_float16_rms, forward_to_float16},
                                          {forward_to_bfloat16_rms, forward_to_bfloat16}};
    const int brain = plan->y.dtype == LN_BFLOAT16;
    (is_half ? from_half : from_real)[brain][centred](x, weight, bias, rows, plan->cols, plan->eps, is_half ? plan->far : LN_NEAR,
                                                      streams, room, row_of(&plan->y, row), mean, rstd);
#else
    (void)plan, (void)x, (void)is_half, (void)weight, (void)bias, (void)row, (void)rows, (void)streams, (void)centred, (void)room;
#endif
}

/* Whether rows are taken as they lie, in a half type, into rows that lie likewise. Short rows that are no multiple of a register are not: a
 * block of them is widened as one run, and each would have an end of its own (at 37 columns a fifth more). */
enum { ENDED_COLUMNS = 256 };
ALWAYS int are_half(const ln_forward_plan *plan, ptrdiff_t row, int streams) {
    const ptrdiff_t cols = plan->cols;
    return !plan->mask.data && !plan->residual.data && are_side_by_side(&plan->x, cols) && plan->x.dtype == plan->y.dtype &&
           (cols % W == 0 || cols >= ENDED_COLUMNS) && can_narrow(&plan->y, row, cols, streams);
}

ALWAYS void normalize_views(const ln_forward_plan *plan, ptrdiff_t first, ptrdiff_t last, const int centred, char *room_) {
    const ptrdiff_t cols = plan->cols, most = plan->block, space = ln_room_of_row(cols * (ptrdiff_t)sizeof(real));
    char *singles = room_ + 2 * most * space;
    real *room = (real *)room_, *row_room = (real *)singles;
    parameter_row weights = {(real *)(singles + space), 0}, biases = {(real *)(singles + 2 * space), 0};
    const mask_room masks = {(uint8_t *)(singles + 3 * space), (real *)(room_ + most * space), (real *)(singles + 4 * space),
                             (real *)(singles + 5 * space)};
    if (is_across(plan)) {
        normalize_across(plan, first, last, centred, &weights, &biases, room);
        return;
    }
    const int streams = plan->far == LN_IN_MEMORY && !is_same(&plan->y, &plan->x) && !is_same(&plan->y, &plan->residual);
    if (are_half(plan, first, streams)) {
        real *reals = (real *)(singles + 6 * space);
        for (ptrdiff_t row = first, rows; row < last; row += rows) {
            rows = rows_in_common(plan, row, last);
            const real *weight = parameters_of(&plan->weight, row, &weights), *bias = parameters_of(&plan->bias, row, &biases);
            normalize_narrow(plan, row_of(&plan->x, row), 1, weight, bias, row, rows, streams, centred, reals);
        }
        return;
    }
    for (ptrdiff_t from = first, to; from < last; from = to) {
        to = last - from < most ? last : from + most;
        const real *x = rows_of(&plan->x, from, to, cols, plan->far, room);
        if (plan->residual.data) x = sums_of(plan, x, from, to, room, row_room);
        const int narrows = !plan->mask.data && can_narrow(&plan->y, from, cols, streams);
        real *y = place_of(&plan->y, from, cols, room);
        const int far = y == room ? LN_NEAR : plan->far;
        for (ptrdiff_t row = from, rows; row < to; row += rows) {
            rows = rows_in_common(plan, row, to);
            const real *x_row = x + (row - from) * cols;
            const real *weight = parameters_of(&plan->weight, row, &weights), *bias = parameters_of(&plan->bias, row, &biases);
            real *y_row = y + (row - from) * cols;
            if (plan->mask.data) {
                const ptrdiff_t alike = ln_is_contiguous(&plan->mask) ? rows_alike(&plan->mask, row) : 1;
                if (alike < rows) rows = alike;
                normalize_masked(plan, x_row, weight, bias, row, rows, bytes_of_row(&plan->mask, row, masks.mask), far, centred,
                                 &masks, y_row);
            } else if (narrows) {
                normalize_narrow(plan, x_row, 0, weight, bias, row, rows, streams, centred, (real *)x_row);
            } else {
                (centred ? forward_body : forward_body_rms)(x_row, weight, bias, 0, rows, cols, plan->eps, far, y_row,
                                                            plan->mean ? plan->mean + row : 0, plan->rstd ? plan->rstd + row : 0);
            }
        }
        if (y == room && !narrows) scatter_rows(&plan->y, room, from, to, cols, streams);
    }
    stream_end();
}

#define VIEWS_KERNEL(VIEWS, CENTRED)                                                                                               \
    static void VIEWS(const ln_forward_plan *plan, ptrdiff_t first, ptrdiff_t last, void *room) {                                  \
        const fp_mode mode = fp_enter();                                                                                           \
        normalize_views(plan, first, last, CENTRED, room);                                                                         \
        fp_leave(mode);                                                                                                            \
    }
VIEWS_KERNEL(forward_views, 1)
VIEWS_KERNEL(forward_views_rms, 0)
#undef VIEWS_KERNEL

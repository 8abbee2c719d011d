/* forward_views.h: the forward pass over views: rows gathered, the residual added, what a mask hides left out, y scattered. Knows which
 * rows go together. Does not know arithmetic. */

/* to = a + b, and past the caches to `past`, which may be NULL */
NEVER void add_row(const real *a, const real *b, ptrdiff_t cols, real *to, real *past) {
    const int head = past ? head_of(past, cols) : 0;
    for (ptrdiff_t j = 0, n; j < cols; j += n) {
        n = j == 0 && head ? head : cols - j < W ? cols - j : W;
        const vec sum = load_n(a + j, (int)n) + load_n(b + j, (int)n);
        store_n(to + j, sum, (int)n);
        if (past) write_n(past + j, sum, (int)n, 1);
    }
}

/* Whether two views begin in the same place: an output that is an input is not streamed */
ALWAYS int is_same(const ln_view *a, const ln_view *b) { return a->data == b->data; }

/* x + residual of rows first … last − 1, rounded to what is stored, which goes to plan->sum. Returned: where it lies, room or there. */
ALWAYS const real *sums_of(const ln_forward_plan *plan, const real *x, ptrdiff_t first, ptrdiff_t last, real *room,
                           real *row_room) {
    const ptrdiff_t cols = plan->cols;
    const ln_view *sum = &plan->sum, *residual = &plan->residual;
    const int direct = are_direct(sum, cols);
    const int streams = direct && plan->far == LN_IN_MEMORY && !is_same(sum, &plan->x) && !is_same(sum, residual);
    real *to = direct && !streams ? (real *)row_of(sum, first) : room;
    for (ptrdiff_t row = first; row < last; ++row) {
        const real *b = (const real *)row_of(residual, row);
        if (!is_direct(residual)) {
            gather_row(residual, (char *)b, row_room);
            b = row_room;
        }
        add_row(x + (row - first) * cols, b, cols, to + (row - first) * cols, streams ? (real *)row_of(sum, row) : 0);
    }
    if (!direct) {
        scatter_rows(sum, to, first, last, cols);
        if (sum->dtype != DTYPE_OF_REAL) return rows_of(sum, first, last, cols, room); /* as it was rounded */
    }
    return to;
}

ALWAYS const real *weights_of(const ln_view *a, ptrdiff_t row) { return a->data ? (const real *)row_of(a, row) : 0; }

/* Rows from `row` to `last` − 1 that have weight and bias in common */
ALWAYS ptrdiff_t rows_in_common(const ln_forward_plan *plan, ptrdiff_t row, ptrdiff_t last) {
    ptrdiff_t rows = last - row;
    if (plan->weight.data && rows_alike(&plan->weight, row) < rows) rows = rows_alike(&plan->weight, row);
    if (plan->bias.data && rows_alike(&plan->bias, row) < rows) rows = rows_alike(&plan->bias, row);
    return rows;
}

/* What a mask needs beside the rows' own room */
typedef struct {
    uint8_t *mask;              /* (cols,)                                  */
    real *rows, *weight, *bias; /* packed: (rows, cols), (cols,), (cols,)   */
} mask_room;

/* `rows` rows from plan's row `row` on, of one weight, bias and mask */
ALWAYS void normalize_masked(const ln_forward_plan *plan, const real *x, ptrdiff_t row, ptrdiff_t rows, const uint8_t *mask,
                             int far, const int centred, const mask_room *room, real *y) {
    const ptrdiff_t cols = plan->cols;
    const mask_shape shape = survey_mask(mask, cols);
    const real *weight = weights_of(&plan->weight, row), *bias = weights_of(&plan->bias, row);
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

ALWAYS void normalize_views(const ln_forward_plan *plan, ptrdiff_t first, ptrdiff_t last, const int centred, char *room_) {
    const ptrdiff_t cols = plan->cols, size = cols * (ptrdiff_t)sizeof(real), space = size + 2 * LN_LINE_BYTES;
    const ptrdiff_t most = plan->block;
    real *room = (real *)room_, *row_room = (real *)(room_ + most * space);
    const mask_room masks = {(uint8_t *)(row_room) + space, (real *)(room_ + (most + 4) * space),
                             (real *)(room_ + (most + 2) * space), (real *)(room_ + (most + 3) * space)};
    for (ptrdiff_t from = first, to; from < last; from = to) {
        to = last - from < most ? last : from + most;
        const real *x = rows_of(&plan->x, from, to, cols, room);
        if (plan->residual.data) x = sums_of(plan, x, from, to, room, row_room);
        real *y = place_of(&plan->y, from, cols, room);
        const int far = y == room ? LN_NEAR : plan->far;
        for (ptrdiff_t row = from, rows; row < to; row += rows) {
            rows = rows_in_common(plan, row, to);
            const real *x_row = x + (row - from) * cols;
            real *y_row = y + (row - from) * cols;
            if (plan->mask.data) {
                const ptrdiff_t alike = ln_is_contiguous(&plan->mask) ? rows_alike(&plan->mask, row) : 1;
                if (alike < rows) rows = alike;
                normalize_masked(plan, x_row, row, rows, bytes_of_row(&plan->mask, row, masks.mask), far, centred, &masks, y_row);
            } else {
                (centred ? forward_body : forward_body_rms)(x_row, weights_of(&plan->weight, row), weights_of(&plan->bias, row), 0,
                                                            rows, cols, plan->eps, far, y_row, plan->mean ? plan->mean + row : 0,
                                                            plan->rstd ? plan->rstd + row : 0);
            }
        }
        if (y == room) scatter_rows(&plan->y, room, from, to, cols);
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

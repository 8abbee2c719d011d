/* backward_views.h: the backward pass over views: rows gathered, the constants of a masked row from what the mask lets through, dx added to
 * and scattered. */

/* What of a group's rows lies in a plan's room */
typedef struct {
    real *x, *dy, *dx;                   /* (GROUP, cols) */
    real *packed_x, *packed_dy, *weight; /* (cols,)       */
    real *row;                           /* (cols,)       */
    uint8_t *mask;                       /* (cols,)       */
} group_room;

/* The constants of one row, taken alone, as row r of a group */
ALWAYS void put_constants(const group_gradient *one, int r, group_gradient *g) {
    g->minus_hi[r] = one->minus_hi[0];
    g->rstd[r] = one->rstd[0];
    g->rest[r] = one->rest[0];
    g->k1[r] = one->k1[0];
    g->slope[r] = one->slope[0];
    g->fit[r] = one->fit[0];
    g->exact[r] = one->exact[0];
    if (one->any_exact) g->rows[r] = one->rows[0];
    g->any_exact |= one->any_exact;
}

/* The constants of a row from what its mask lets through. What it hides becomes the mean in x, whose distance from it is 0, and 0 in dy. */
NEVER void take_masked(const ln_backward_plan *plan, const real *x, const real *dy, const real *weight, ptrdiff_t row, int r,
                       int centred, const group_room *room, group_gradient *g) {
    const ptrdiff_t cols = plan->cols;
    const double mean = centred ? plan->mean[row] : 0, *rstd = plan->rstd + row;
    const uint8_t *mask = bytes_of_row(&plan->mask, row, room->mask);
    const mask_shape shape = survey_mask(mask, cols);
    group_gradient one = {.fit = {-1}}; /* of a row with nothing live: 0 */
    if (shape.live) {
        const real *live_weight = weight;
        pack_row(x, mask, cols, room->packed_x);
        pack_row(dy, mask, cols, room->packed_dy);
        if (weight) pack_row(weight, mask, cols, room->weight), live_weight = room->weight;
        (centred ? constants_body : constants_body_rms)(room->packed_x, room->packed_dy, live_weight, &mean, rstd, 0, 1, shape.live,
                                                        LN_NEAR, plan->dx.data != 0, &one);
    }
    put_constants(&one, r, g);
    hide_row(x, mask, cols, shape.live ? (real)mean : 0, room->x + r * cols);
    hide_row(dy, mask, cols, 0, room->dy + r * cols);
}

/* dx of `rows` rows (at most GROUP), which may be room->dx, and their terms into the block's sums */
ALWAYS void differentiate_masked(const ln_backward_plan *plan, const real *x, const real *dy, const real *weight, ptrdiff_t row,
                                 int rows, const int centred, const group_room *room, real *dx, double *sums) {
    const ptrdiff_t cols = plan->cols;
    group_gradient g = {.any_exact = 0};
    for (int r = 0; r < rows; ++r)
        take_masked(plan, x + r * cols, dy + r * cols, weight, row + r, r, centred, room, &g);
    const columns_plan columns = plan_columns(room->x, room->dy, dx, cols, LN_NEAR, DTYPE_OF_REAL);
    for (tile t = first_tile(0, cols, 0, 0, cols, centred, 0); t.first < cols; advance(&t, cols))
        compute_group(room->x, room->dy, DTYPE_OF_REAL, weight, &g, rows, &t, &columns, dx, sums);
    for (int r = 0; dx && r < rows; ++r)
        hide_row(dx + r * cols, bytes_of_row(&plan->mask, row + r, room->mask), cols, 0, dx + r * cols);
}

/* dx += ds */
ALWAYS void add_ds(const ln_view *ds, const real *dx, ptrdiff_t row, int rows, ptrdiff_t cols, real *row_room, real *to,
                   int streams) {
    for (int r = 0; r < rows; ++r) {
        const real *b = (const real *)row_of(ds, row + r);
        if (!is_direct(ds)) {
            gather_row(ds, (char *)b, row_room);
            b = row_room;
        }
        add_row(dx + r * cols, b, cols, 0, streams ? row_room : to + r * cols, streams ? to + r * cols : 0);
    }
}

/* Whether x, dy and dx, where that is wanted, are of one half type, and taken as they lie */
ALWAYS int are_gradients_half(const ln_backward_plan *plan) {
    const ptrdiff_t cols = plan->cols;
    const int dx_is = !plan->dx.data || (plan->dx.dtype == plan->x.dtype && are_side_by_side(&plan->dx, cols));
    return plan->x.dtype != DTYPE_OF_REAL && plan->dy.dtype == plan->x.dtype && are_side_by_side(&plan->x, cols) &&
           are_side_by_side(&plan->dy, cols) && dx_is && !plan->mask.data && !plan->ds.data;
}
/* `rows` rows of such */
ALWAYS void differentiate_half(const ln_backward_plan *plan, ptrdiff_t row, ptrdiff_t rows, const real *weight, const int centred,
                               real *room, double *sums) {
#if HAS_HALF
    half_body *const bodies[2][2] = {{backward_float16_rms, backward_float16}, {backward_bfloat16_rms, backward_bfloat16}};
    bodies[plan->x.dtype == LN_BFLOAT16][centred](row_of(&plan->x, row), row_of(&plan->dy, row), weight,
                                                  centred ? plan->mean + row : 0, plan->rstd + row, rows, plan->cols, plan->far,
                                                  room, plan->dx.data ? row_of(&plan->dx, row) : 0, sums);
#else
    (void)plan, (void)row, (void)rows, (void)weight, (void)centred, (void)room, (void)sums;
#endif
}

ALWAYS void differentiate_views(const ln_backward_plan *plan, ptrdiff_t first, ptrdiff_t last, const int centred, char *room_,
                                double *sums) {
    const ptrdiff_t cols = plan->cols, space = ln_room_of_row(cols * (ptrdiff_t)sizeof(real));
    const ptrdiff_t most = plan->block;
    char *singles = room_ + 3 * most * space;
    const group_room room = {.x = (real *)room_,
                             .dy = (real *)(room_ + most * space),
                             .dx = (real *)(room_ + 2 * most * space),
                             .packed_x = (real *)singles,
                             .packed_dy = (real *)(singles + space),
                             .weight = (real *)(singles + 2 * space),
                             .row = (real *)(singles + 3 * space),
                             .mask = (uint8_t *)(singles + 4 * space)};
    parameter_row weights = {(real *)(singles + 5 * space), 0};
    const real *weight = parameters_of(&plan->weight, first, &weights);
    const int near = plan->far == LN_NEAR ? LN_NEAR : LN_BEYOND_CORE;
    const int direct = plan->dx.data && are_direct(&plan->dx, cols);
    const int streams = plan->dx.data && plan->far == LN_IN_MEMORY && !is_same(&plan->dx, &plan->x) &&
                        !is_same(&plan->dx, &plan->dy) && !is_same(&plan->dx, &plan->ds);
    if (are_gradients_half(plan)) {
        differentiate_half(plan, first, last - first, weight, centred, (real *)room_, sums);
        return;
    }
    if (sums) memset(sums, 0, (size_t)(PLANES * cols) * sizeof *sums);
    if (is_gradient_across(plan, last - first)) {
        differentiate_across(plan, first, last, weight, centred, room.x, sums);
        return;
    }
    for (ptrdiff_t from = first, to; from < last; from = to) {
        to = last - from < most ? last : from + most;
        const real *x = rows_of(&plan->x, from, to, cols, plan->far, room.x),
                   *dy = rows_of(&plan->dy, from, to, cols, plan->far, room.dy);
        real *place = direct ? (real *)row_of(&plan->dx, from) : room.dx;
        real *dx = !plan->dx.data ? 0 : plan->ds.data ? room.dx : place;
        if (plan->mask.data) {
            for (ptrdiff_t row = from, rows; row < to; row += rows) {
                rows = to - row < GROUP ? to - row : GROUP;
                const ptrdiff_t at = (row - from) * cols;
                differentiate_masked(plan, x + at, dy + at, weight, row, (int)rows, centred, &room, dx ? dx + at : 0, sums);
            }
        } else {
            (centred ? backward_body : backward_body_rms)(x, dy, weight, centred ? plan->mean + from : 0, plan->rstd + from, 0,
                                                          to - from, cols, dx == place && direct && streams ? plan->far : near, 0,
                                                          dx, sums);
        }
        if (!dx) continue;
        if (plan->ds.data) add_ds(&plan->ds, dx, from, (int)(to - from), cols, room.row, place, direct && streams);
        if (!direct) scatter_rows(&plan->dx, place, from, to, cols, streams);
    }
    stream_end();
}

#define VIEWS_KERNEL(VIEWS, CENTRED)                                                                                               \
    static void VIEWS(const ln_backward_plan *plan, ptrdiff_t first, ptrdiff_t last, void *room, double *sums) {                   \
        const fp_mode mode = fp_enter();                                                                                           \
        differentiate_views(plan, first, last, CENTRED, room, sums);                                                               \
        fp_leave(mode);                                                                                                            \
    }
VIEWS_KERNEL(backward_views, 1)
VIEWS_KERNEL(backward_views_rms, 0)
#undef VIEWS_KERNEL

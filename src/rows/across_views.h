/* across_views.h: forward and backward over views whose rows lie side by side across their columns: tile after tile, band after band. Knows
 * which rows go together. Does not know arithmetic. */

/* Rows that run across one axis of columns */
ALWAYS int runs_across(const ln_view *a) { return ln_runs_across(a) && a->col_axes == 1; }

/* Whether x and y do, and nothing is hidden or added */
ALWAYS int is_across(const ln_forward_plan *plan) {
    return plan->cols <= MOST_ACROSS && runs_across(&plan->x) && runs_across(&plan->y) && !plan->mask.data && !plan->residual.data;
}
/* Whether x, dy and dx do, and there are more than a few */
ALWAYS int is_gradient_across(const ln_backward_plan *plan, ptrdiff_t rows) {
    return plan->cols <= MOST_ACROSS && rows > FEW_ROWS && runs_across(&plan->x) && runs_across(&plan->dy) &&
           runs_across(&plan->dx) && !plan->mask.data && !plan->ds.data;
}

/* A run's rows so near each other that bands are taken where they lie: no tile, no longer runs */
ALWAYS int is_near(const ln_view *a, ptrdiff_t cols) {
    const ptrdiff_t stride = a->col_strides[0], size = cols * (stride < 0 ? -stride : stride);
    return a->dtype == DTYPE_OF_REAL && size <= NEAR_BYTES && stride % (ptrdiff_t)sizeof(real) == 0;
}

/* Rows that share a weight, from where they lie to where they are to lie, which is elsewhere: bands, of which the last may have rows of
 * the one before once more. rows: at least BAND */
ALWAYS void normalize_near(const ln_forward_plan *plan, ptrdiff_t row, ptrdiff_t rows, const int centred, const real *weight,
                           const real *bias, real *room) {
    const ptrdiff_t x_pitch = plan->x.col_strides[0] / (ptrdiff_t)sizeof(real),
                    y_pitch = plan->y.col_strides[0] / (ptrdiff_t)sizeof(real);
    const real *x = (const real *)row_of(&plan->x, row);
    real *y = (real *)row_of(&plan->y, row);
    double *mean = plan->mean ? plan->mean + row : 0, *rstd = plan->rstd ? plan->rstd + row : 0;
    for (ptrdiff_t at = 0; at < rows; at += BAND) {
        if (at > rows - BAND) at = rows - BAND;
        forward_band(x + at, x_pitch, weight, bias, plan->cols, BAND, plan->eps, centred, y + at, y_pitch, mean ? mean + at : 0,
                     rstd ? rstd + at : 0, room);
    }
}

/* Rows first … last − 1 of a plan that goes across. room: a tile and a band */
ALWAYS void normalize_across(const ln_forward_plan *plan, ptrdiff_t first, ptrdiff_t last, const int centred,
                             parameter_row *weights, parameter_row *biases, real *room) {
    const ptrdiff_t cols = plan->cols;
    const int most = tile_rows(plan->block), in_place = is_same(&plan->x, &plan->y);
    const int near = !in_place && plan->far != LN_IN_MEMORY && is_near(&plan->x, cols) && is_near(&plan->y, cols);
    const int far = plan->far == LN_IN_MEMORY && in_place ? LN_BEYOND_CORE : plan->far;
    for (ptrdiff_t row = first, count; row < last; row += count) {
        const ptrdiff_t alike = rows_in_common(plan, row, last);
        const real *weight = parameters_of(&plan->weight, row, weights), *bias = parameters_of(&plan->bias, row, biases);
        double *mean = plan->mean ? plan->mean + row : 0, *rstd = plan->rstd ? plan->rstd + row : 0;
        count = near ? rows_of_run(&plan->x, row, rows_of_run(&plan->y, row, alike)) : 0;
        if (count >= BAND) {
            normalize_near(plan, row, count, centred, weight, bias, room);
            continue;
        }
        count = alike;
        if (count > most) { /* the next tile's columns begin a line each */
            const int before = rows_before_lines(&plan->y, row);
            count = before ? most - BAND + before : most;
        }
        if (count <= FEW_ROWS) {
            count = 1;
            gather_row(&plan->x, row_of(&plan->x, row), room);
            (centred ? forward_body : forward_body_rms)(room, weight, bias, 0, 1, cols, plan->eps, LN_NEAR, room, mean, rstd);
            scatter_row(&plan->y, room, row_of(&plan->y, row));
            continue;
        }
        read_tile(&plan->x, row, (int)count, cols, plan->far, room);
        for (int at = 0; at < count; at += BAND) {
            real *band = room + at * cols;
            forward_band(band, BAND, weight, bias, cols, (int)(count - at < BAND ? count - at : BAND), plan->eps, centred, band,
                         BAND, mean ? mean + at : 0, rstd ? rstd + at : 0, room + most * cols);
        }
        write_tile(&plan->y, row, (int)count, cols, far, room);
    }
    stream_end();
}

/* A block's rows, which share a weight. room: two tiles and two bands */
ALWAYS void differentiate_across(const ln_backward_plan *plan, ptrdiff_t first, ptrdiff_t last, const real *weight,
                                 const int centred, real *room, double *sums) {
    const ptrdiff_t cols = plan->cols;
    const int most = tile_rows(plan->block);
    real *x = room, *dy = room + most * cols, *bands = room + 2 * most * cols;
    for (ptrdiff_t row = first, count; row < last; row += count) {
        count = last - row < most ? last - row : most;
        read_tile(&plan->x, row, (int)count, cols, plan->far, x);
        read_tile(&plan->dy, row, (int)count, cols, plan->far, dy);
        for (int at = 0; at < count; at += BAND)
            backward_band(x + at * cols, dy + at * cols, weight, centred ? plan->mean + row + at : 0, plan->rstd + row + at,
                          (int)(count - at < BAND ? count - at : BAND), cols, centred, sums, bands);
        write_tile(&plan->dx, row, (int)count, cols, plan->far ? LN_BEYOND_CORE : LN_NEAR, x);
    }
}

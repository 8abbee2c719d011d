/* across_f32.h: the forward pass of rows that lie side by side across their columns: the raw way of statistics_f32.h and the output of
 * forward.h, a vector of rows for a vector of columns. The same operations on the same values in the same order, so the same bits.
 *
 * Bytes: a column's line of ABREAST_ROWS rows is read once, to a tile that lies close by, and written once. */

enum { ABREAST_ROWS = LN_LINE_BYTES / 4, TILE_VECTORS = ABREAST_ROWS / WF };
/* Rows that are gathered one by one, at most: fewer than that on a line take less time so (7×7 places: 2.4 against 3.0) */
enum { FEW_ROWS = 5 };
/* Registers of float64 sums of the rows that are summed at once */
enum { SUMMED = ABREAST_ROWS / WD < 4 ? ABREAST_ROWS / WD : 4 };

/* Columns of a block that lie in the tile, at most: half of a second-level cache */
enum { MOST_ACROSS = 8192 };

/* Sums of a chunk's lanes: column j in lane j mod 16, of each row */
typedef struct {
    double lane[16][ABREAST_ROWS];
} lane_sums;

/* Σ x and Σ x² of rows at … at + SUMMED · WD − 1 over columns lane, lane + 16, … of a chunk */
ALWAYS void sum_lane(const float *tile, ptrdiff_t cols, int lane, int at, const int centred, lane_sums *sum, lane_sums *square) {
    vd s[SUMMED], q[SUMMED];
    EACH(i, SUMMED) s[i] = q[i] = (vd){0};
    for (ptrdiff_t j = lane; j < cols; j += 16) {
        EACH(i, SUMMED) {
            const vd x = load_wide(tile + j * ABREAST_ROWS + at + i * WD);
            if (centred) s[i] = i % 2 ? plus_d(x, s[i]) : s[i] + x;
            q[i] = add_exact_product(x, x, q[i]);
        }
    }
    EACH(i, SUMMED) {
        if (centred) store_d(sum->lane[lane] + at + i * WD, s[i]);
        store_d(square->lane[lane] + at + i * WD, q[i]);
    }
}

/* total += the lanes of rows at … at + WD − 1, in the order of sum_chunk and sum_lanes */
ALWAYS void add_lanes(const lane_sums *sums, int at, double *total) {
    vd l[8];
    EACH(k, 8) l[k] = load_d(sums->lane[k] + at) + load_d(sums->lane[k + 8] + at);
    EACH(k, 4) l[k] = l[k] + l[k + 4];
    EACH(k, 2) l[k] = l[k] + l[k + 2];
    store_d(total + at, load_d(total + at) + (l[0] + l[1]));
}

/* Statistics of the rows of a tile. Returned: which rows want another way, a bit each. */
ALWAYS unsigned take_across(const float *tile, ptrdiff_t cols, double eps, const int centred, double *mean, double *rstd) {
    lane_sums sum, square;
    double total[ABREAST_ROWS] = {0}, total_square[ABREAST_ROWS] = {0};
    unsigned others = 0;
    for (ptrdiff_t j = 0; j < cols; j += CHUNK) {
        const ptrdiff_t width = cols - j < CHUNK ? cols - j : CHUNK;
        for (int at = 0; at < ABREAST_ROWS; at += SUMMED * WD)
            for (int lane = 0; lane < 16; ++lane)
                sum_lane(tile + j * ABREAST_ROWS, width, lane, at, centred, &sum, &square);
        for (int at = 0; at < ABREAST_ROWS; at += WD) {
            if (centred) add_lanes(&sum, at, total);
            add_lanes(&square, at, total_square);
        }
    }
    const vd n = splat_d((double)cols);
    for (int at = 0; at < ABREAST_ROWS; at += WD) {
        vd m, r;
        const vm good = finish_raw(load_d(total + at), load_d(total_square + at), n, eps, centred, &m, &r);
        store_d(mean + at, m);
        store_d(rstd + at, r);
        EACH(k, WD) others |= (unsigned)!good[k] << (at + k);
    }
    return others;
}

/* Where column j of `rows` rows begins */
typedef struct {
    char *p;
    ptrdiff_t stride;
    int dtype, itemsize;
} columns_of_rows;

/* y of a tile, column after column, as normalize has it */
ALWAYS void write_across(const float *tile, const float *weight, const float *bias, ptrdiff_t cols, const float *hi,
                         const float *rest, const float *rstd, int rows, const int centred, const int streams,
                         const columns_of_rows *y) {
    vf h[TILE_VECTORS], l[TILE_VECTORS], r[TILE_VECTORS];
    EACH(k, TILE_VECTORS) {
        h[k] = load_f(hi + k * WF);
        l[k] = load_f(rest + k * WF);
        r[k] = load_f(rstd + k * WF);
    }
    for (ptrdiff_t j = 0; j < cols; ++j) {
        float column[ABREAST_ROWS];
        vf v[TILE_VECTORS];
        EACH(k, TILE_VECTORS) {
            const vf x = load_f(tile + j * ABREAST_ROWS + k * WF);
            v[k] = normalize_vector(x, h[k], l[k], r[k], weight != 0, weight ? splat_f(weight[j]) : x, bias != 0,
                                    bias ? splat_f(bias[j]) : x, centred);
        }
        char *p = y->p + j * y->stride;
        if (streams) {
            EACH(k, TILE_VECTORS) stream_f((float *)p + k * WF, v[k]);
        } else if (y->dtype == LN_FLOAT32) {
            EACH(k, TILE_VECTORS) {
                const int left = rows - k * WF;
                if (left > 0) store_n_f((float *)p + k * WF, v[k], left < WF ? left : WF);
            }
        } else {
            EACH(k, TILE_VECTORS) store_f(column + k * WF, v[k]);
            write_run(column, rows, y->dtype, p, y->itemsize, 0);
        }
    }
}
NEVER void write_across_all(const float *tile, const float *weight, const float *bias, ptrdiff_t cols, const float *hi,
                            const float *rest, const float *rstd, int rows, int centred, int streams, const columns_of_rows *y) {
#define WRITE(W_, B_)                                                                                                              \
    do {                                                                                                                           \
        if (!centred)                                                                                                              \
            streams ? write_across(tile, W_, 0, cols, hi, rest, rstd, rows, 0, 1, y)                                               \
                    : write_across(tile, W_, 0, cols, hi, rest, rstd, rows, 0, 0, y);                                              \
        else                                                                                                                       \
            streams ? write_across(tile, W_, B_, cols, hi, rest, rstd, rows, 1, 1, y)                                              \
                    : write_across(tile, W_, B_, cols, hi, rest, rstd, rows, 1, 0, y);                                             \
    } while (0)
    if (weight && bias)
        WRITE(weight, bias);
    else if (weight)
        WRITE(weight, 0);
    else if (bias)
        WRITE(0, bias);
    else
        WRITE(0, 0);
#undef WRITE
}

/* The columns of `rows` rows, to the tile; what follows of them on the same lines' neighbours is fetched. Rows that are not there: 0 */
NEVER void read_across(const columns_of_rows *x, ptrdiff_t cols, int rows, int far, float *tile) {
    for (ptrdiff_t j = 0; j < cols; ++j) {
        const char *p = x->p + j * x->stride;
        float *to = tile + j * ABREAST_ROWS;
        if (far) fetch(p + rows * x->itemsize);
        if (x->dtype == LN_FLOAT32) {
            EACH(k, TILE_VECTORS) store_f(to + k * WF, load_left((const float *)p + k * WF, rows - k * WF));
        } else {
            memset(to, 0, ABREAST_ROWS * sizeof *to);
            read_run(p, x->itemsize, x->dtype, rows, 0, to);
        }
    }
}

/* y and statistics of `rows` rows (at most ABREAST_ROWS) of one weight; rows that want another way are taken one by one.
 * room: (ABREAST_ROWS + 1) · cols */
ALWAYS void normalize_across(const columns_of_rows *x, const float *weight, const float *bias, ptrdiff_t cols, int rows, double eps,
                             int far, const int centred, const columns_of_rows *y, double *mean_of_rows, double *rstd_of_rows,
                             float *room) {
    double mean[ABREAST_ROWS], rstd[ABREAST_ROWS];
    float hi[ABREAST_ROWS], rest[ABREAST_ROWS], factor[ABREAST_ROWS];
    const int lines =
        rows == ABREAST_ROWS && y->dtype == LN_FLOAT32 && y->stride % LN_LINE_BYTES == 0 && (uintptr_t)y->p % LN_LINE_BYTES == 0;
    read_across(x, cols, rows, far, room);
    unsigned others = take_across(room, cols, eps, centred, mean, rstd);
    for (int r = 0; r < ABREAST_ROWS; ++r) {
        row_stats s = {.hi = mean[r], .lo = 0, .factor = rstd[r], .mean = mean[r], .rstd = rstd[r], .power = 0, .exact = 0};
        hi[r] = rest[r] = 0;
        if (centred) split_mean(&s, &hi[r], &rest[r]);
        factor[r] = (float)rstd[r];
        others |= (unsigned)(s.exact != 0) << r;
        if (r >= rows) continue;
        if (mean_of_rows) mean_of_rows[r] = mean[r];
        if (rstd_of_rows) rstd_of_rows[r] = rstd[r];
    }
    float *row = room + ABREAST_ROWS * cols;
    write_across_all(room, weight, bias, cols, hi, rest, factor, rows, centred, lines && far == LN_IN_MEMORY && x->p != y->p, y);
    for (int r = 0; r < rows; ++r) {
        if (!(others >> r & 1)) continue;
        for (ptrdiff_t j = 0; j < cols; ++j)
            row[j] = room[j * ABREAST_ROWS + r];
        (centred ? forward_body : forward_body_rms)(row, weight, bias, 0, 1, cols, eps, LN_NEAR, row,
                                                    mean_of_rows ? mean_of_rows + r : 0, rstd_of_rows ? rstd_of_rows + r : 0);
        write_run(row, cols, y->dtype, y->p + r * y->itemsize, y->stride, 0);
    }
}

/* Whether x and y lie alike across one axis of columns, and nothing is hidden or added */
ALWAYS int is_across(const ln_forward_plan *plan) {
    const ln_view *x = &plan->x, *y = &plan->y;
    return plan->cols <= MOST_ACROSS && ln_runs_across(x) && ln_runs_across(y) && x->col_axes == 1 && y->col_axes == 1 &&
           x->row_lengths[x->row_axes - 1] == y->row_lengths[y->row_axes - 1] && !plan->mask.data && !plan->residual.data;
}
ALWAYS columns_of_rows columns_at(const ln_view *a, ptrdiff_t row) {
    return (columns_of_rows){row_of(a, row), a->col_strides[0], a->dtype, a->itemsize};
}

/* Rows first … last − 1 of a plan that goes across, those that do not share their weight one by one. Returns whether it does. */
ALWAYS int normalized_across(const ln_forward_plan *plan, ptrdiff_t first, ptrdiff_t last, const int centred,
                             parameter_row *weights, parameter_row *biases, real *room) {
    if (!is_across(plan)) return 0;
    for (ptrdiff_t row = first, count; row < last; row += count) {
        const ptrdiff_t alike = rows_in_common(plan, row, last);
        count = count_across(&plan->x, row, last - row);
        if (count > ABREAST_ROWS) count = ABREAST_ROWS;
        if (count > alike) count = alike;
        if (count <= FEW_ROWS) count = 1;
        const real *weight = parameters_of(&plan->weight, row, weights), *bias = parameters_of(&plan->bias, row, biases);
        double *mean = plan->mean ? plan->mean + row : 0, *rstd = plan->rstd ? plan->rstd + row : 0;
        if (count == 1) {
            gather_row(&plan->x, row_of(&plan->x, row), room);
            (centred ? forward_body : forward_body_rms)(room, weight, bias, 0, 1, plan->cols, plan->eps, LN_NEAR, room, mean, rstd);
            scatter_row(&plan->y, room, row_of(&plan->y, row));
        } else {
            const columns_of_rows x = columns_at(&plan->x, row), y = columns_at(&plan->y, row);
            normalize_across(&x, weight, bias, plan->cols, (int)count, plan->eps, plan->far, centred, &y, mean, rstd, room);
        }
    }
    stream_end();
    return 1;
}

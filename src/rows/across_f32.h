/* across_f32.h: the forward pass of rows that lie side by side across their columns: the raw way of statistics_f32.h and the output of
 * forward.h, a vector of rows for a vector of columns. The same operations on the same values in the same order, so the same bits.
 *
 * Bytes: a column's line of ABREAST_ROWS rows is read once, to a tile that lies close by, and written once. */

enum {
    HAS_ACROSS = 1,
    ABREAST_ROWS = LN_LINE_BYTES / 4,
    FEW_ROWS = 5 /* are gathered one by one: as long as that takes less */,
    TILE_VECTORS = ABREAST_ROWS / WF
};
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
        const vd m = centred ? load_d(total + at) / n : (vd){0};
        const vd v = (load_d(total_square + at) / n - m * m) + eps;
        const vd r = 1.0 / root(v);
        const vm good = (m * m <= 0x1p18 * v) & (v >= 1 / (RSTD_MAX * RSTD_MAX)) & (v <= RSTD_MAX * RSTD_MAX);
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
            v[k] = load_f(tile + j * ABREAST_ROWS + k * WF);
            v[k] = centred ? standardize(v[k], h[k], l[k], r[k]) : v[k] * r[k];
            if (weight && bias)
                v[k] = multiply_add_f(v[k], splat_f(weight[j]), splat_f(bias[j]));
            else if (weight)
                v[k] *= splat_f(weight[j]);
            else if (bias)
                v[k] += splat_f(bias[j]);
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

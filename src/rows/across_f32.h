/* across_f32.h: float32's rows that lie side by side across their columns, a band of them at once: a vector of rows for a vector of
 * columns. The operations of the raw way (statistics_f32.h), of forward.h, of gradient_f32.h and strip.h on the same values in the same
 * order, so the same bits. Rows that want another way take the usual one, turned. */

/* Rows that are gathered one by one, at most: fewer than that in a band take less time so */
enum { FEW_ROWS = 5 };
/* Bytes from a run's first column to its last up to which bands are taken where they lie, without a tile: they stay in the second-level
 * cache until the last band has its part of each line (two thirds of the time up to 200 KiB, as long at 256 to 400, twice at 500) */
enum { NEAR_BYTES = 262144 };

/* Registers of float64 sums of the rows that are summed at once */
enum { SUMMED = BAND / WD < 4 ? BAND / WD : 4 };

/* Sums of a band's rows: column j in lane j mod 16 */
typedef struct {
    double lane[16][BAND];
} lane_sums;

/* Σ x and Σ x² of rows at … at + SUMMED · WD − 1 over columns lane, lane + 16, … of a chunk */
ALWAYS void sum_lane(const float *band, ptrdiff_t pitch, ptrdiff_t cols, int lane, int at, const int centred, lane_sums *sum,
                     lane_sums *square) {
    vd s[SUMMED], q[SUMMED];
    EACH(i, SUMMED) s[i] = q[i] = (vd){0};
    for (ptrdiff_t j = lane; j < cols; j += 16) {
        EACH(i, SUMMED) {
            const vd x = load_wide(band + j * pitch + at + i * WD);
            if (centred) s[i] = i % 2 ? plus_d(x, s[i]) : s[i] + x;
            q[i] = add_exact_product(x, x, q[i]);
        }
    }
    EACH(i, SUMMED) {
        if (centred) store_d(sum->lane[lane] + at + i * WD, s[i]);
        store_d(square->lane[lane] + at + i * WD, q[i]);
    }
}

/* The lanes of rows at … at + WD − 1 added, in the order of sum_chunk and sum_lanes */
ALWAYS vd add_lanes(const lane_sums *sums, int at) {
    vd l[8];
    EACH(k, 8) l[k] = load_d(sums->lane[k] + at) + load_d(sums->lane[k + 8] + at);
    EACH(k, 4) l[k] = l[k] + l[k + 4];
    EACH(k, 2) l[k] = l[k] + l[k + 2];
    return l[0] + l[1];
}

/* Statistics of a band's rows. Returned: which want another way, a bit each. */
NEVER unsigned take_across(const float *band, ptrdiff_t pitch, ptrdiff_t cols, double eps, int centred, double *mean,
                           double *rstd) {
    lane_sums sum, square;
    double total[BAND] = {0}, total_square[BAND] = {0};
    unsigned others = 0;
    for (ptrdiff_t j = 0; j < cols; j += CHUNK) {
        const ptrdiff_t width = cols - j < CHUNK ? cols - j : CHUNK;
        for (int at = 0; at < BAND; at += SUMMED * WD)
            for (int lane = 0; lane < 16; ++lane)
                sum_lane(band + j * pitch, pitch, width, lane, at, centred, &sum, &square);
        for (int at = 0; at < BAND; at += WD) {
            if (centred) store_d(total + at, load_d(total + at) + add_lanes(&sum, at));
            store_d(total_square + at, load_d(total_square + at) + add_lanes(&square, at));
        }
    }
    const vd n = splat_d((double)cols);
    for (int at = 0; at < BAND; at += WD) {
        vd m, r;
        const vm good = finish_raw(load_d(total + at), load_d(total_square + at), n, eps, centred, &m, &r);
        store_d(mean + at, m);
        store_d(rstd + at, r);
        EACH(k, WD) others |= (unsigned)!good[k] << (at + k);
    }
    return others;
}

/* y of a band, column after column, as normalize has it. Constants of each row. */
ALWAYS void normalize_columns_of_band(const float *x, ptrdiff_t x_pitch, const float *weight, const float *bias, ptrdiff_t cols,
                                      const float *minus_hi, const float *rest, const float *rstd, const int centred, float *y,
                                      ptrdiff_t y_pitch) {
    vf h[BAND_VECTORS], l[BAND_VECTORS], r[BAND_VECTORS];
    EACH(k, BAND_VECTORS) {
        h[k] = load_f(minus_hi + k * WF);
        l[k] = load_f(rest + k * WF);
        r[k] = load_f(rstd + k * WF);
    }
    for (ptrdiff_t j = 0; j < cols; ++j) {
        vf v[BAND_VECTORS];
        EACH(k, BAND_VECTORS) v[k] = load_f(x + j * x_pitch + k * WF);
        EACH(k, BAND_VECTORS)
        store_f(y + j * y_pitch + k * WF, normalize_vector(v[k], h[k], l[k], r[k], weight != 0, weight ? splat_f(weight[j]) : v[k],
                                                           bias != 0, bias ? splat_f(bias[j]) : v[k], centred));
    }
}
NEVER void normalize_band(const float *x, ptrdiff_t x_pitch, const float *weight, const float *bias, ptrdiff_t cols,
                          const float *minus_hi, const float *rest, const float *rstd, int centred, float *y, ptrdiff_t y_pitch) {
#define NORMALIZE(W_, B_, CENTRED) normalize_columns_of_band(x, x_pitch, W_, B_, cols, minus_hi, rest, rstd, CENTRED, y, y_pitch)
    if (!centred)
        weight ? NORMALIZE(weight, 0, 0) : NORMALIZE(0, 0, 0);
    else if (weight && bias)
        NORMALIZE(weight, bias, 1);
    else if (weight)
        NORMALIZE(weight, 0, 1);
    else if (bias)
        NORMALIZE(0, bias, 1);
    else
        NORMALIZE(0, 0, 1);
#undef NORMALIZE
}

/* y, which may be x, and statistics of a band's `rows` rows; others: room for those that want another way, (BAND, cols) */
ALWAYS void forward_band(const float *x, ptrdiff_t x_pitch, const float *weight, const float *bias, ptrdiff_t cols, int rows,
                         double eps, const int centred, float *y, ptrdiff_t y_pitch, double *mean_of_rows, double *rstd_of_rows,
                         float *others) {
    double mean[BAND], rstd[BAND];
    float minus_hi[BAND], rest[BAND], factor[BAND];
    unsigned marked = take_across(x, x_pitch, cols, eps, centred, mean, rstd);
    for (int at = 0; at < BAND; at += WD) {
        const vd m = load_d(mean + at), s = load_d(rstd + at);
        vh minus, left;
        const vm split = split_mean(m, (vd){0}, s, &minus, &left);
        store_h(minus_hi + at, minus);
        store_h(rest + at, left);
        store_h(factor + at, narrow(s));
        if (centred && any_of(~split)) EACH(k, WD) marked |= (unsigned)!split[k] << (at + k);
    }
    marked &= (1u << rows) - 1;
    for (int r = 0; r < rows; ++r) {
        double *to_mean = mean_of_rows ? mean_of_rows + r : 0, *to_rstd = rstd_of_rows ? rstd_of_rows + r : 0;
        if (to_mean) *to_mean = mean[r];
        if (to_rstd) *to_rstd = rstd[r];
        if (!(marked >> r & 1)) continue;
        float *row = others + r * cols;
        for (ptrdiff_t j = 0; j < cols; ++j)
            row[j] = x[j * x_pitch + r];
        (centred ? forward_body : forward_body_rms)(row, weight, bias, 0, 1, cols, eps, LN_NEAR, row, to_mean, to_rstd);
    }
    normalize_band(x, x_pitch, weight, bias, cols, minus_hi, rest, factor, centred, y, y_pitch);
    for (int r = 0; r < rows; ++r)
        for (ptrdiff_t j = 0; marked >> r & 1 && j < cols; ++j)
            y[j * y_pitch + r] = others[r * cols + j];
}

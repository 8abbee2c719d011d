/* across_gradient_f32.h: backward of rows that lie side by side across their columns, a band of them at once. */

/* A column of each row of a step that has fewer than STEP: 0 for those that are not there */
typedef struct {
    float x[STEP * BAND], dy[STEP * BAND], weight[STEP];
} short_step;

/* Σ h (where not centred Σ |h|) and Σ h · (x − hi) of a band's rows over one step of columns, added to the lanes of both, or in their
 * place: as add_products and add_step have it. sixteens: 4, or 2 where the others are not there */
ALWAYS void sum_step(const float *x, const float *dy, const float *weight, const float *minus_hi, const int sixteens, int begins,
                     const int centred, lane_sums *h_sum, lane_sums *hd_sum) {
    for (int lane = 0; lane < 16; ++lane) {
        EACH(v, BAND_VECTORS) {
            vf h[4], hd[4];
            float sums[3][WF];
            const vf minus = load_f(minus_hi + v * WF);
            EACH(k, sixteens) {
                const ptrdiff_t at = (16 * k + lane) * BAND + v * WF;
                const vf x_k = load_f(x + at), dy_k = load_f(dy + at);
                h[k] = weight ? dy_k * splat_f(weight[16 * k + lane]) : dy_k;
                hd[k] = h[k] * (centred ? x_k + minus : x_k);
                if (!centred) h[k] = magnitude_f(h[k]);
            }
            store_f(sums[0], sixteens == 4 ? (h[0] + h[1]) + (h[2] + h[3]) : h[0] + h[1]);
            store_f(sums[1], hd[0] + hd[1]);
            store_f(sums[2], sixteens == 4 ? hd[2] + hd[3] : (vf){0});
            EACH(i, WF / WD) {
                double *to_h = h_sum->lane[lane] + v * WF + i * WD, *to_hd = hd_sum->lane[lane] + v * WF + i * WD;
                const vd h_i = load_wide(sums[0] + i * WD), hd_i = load_wide(sums[1] + i * WD) + load_wide(sums[2] + i * WD);
                store_d(to_h, begins ? h_i : load_d(to_h) + h_i);
                store_d(to_hd, begins ? hd_i : load_d(to_hd) + hd_i);
            }
        }
    }
}
ALWAYS void sum_last_step(const float *x, const float *dy, const float *weight, ptrdiff_t left, const float *minus_hi, int begins,
                          const int centred, lane_sums *h_sum, lane_sums *hd_sum) {
    short_step s = {.x = {0}};
    memcpy(s.x, x, (size_t)left * BAND * sizeof *x);
    memcpy(s.dy, dy, (size_t)left * BAND * sizeof *dy);
    if (weight) memcpy(s.weight, weight, (size_t)left * sizeof *weight);
    if (left > STEP / 2)
        sum_step(s.x, s.dy, weight ? s.weight : 0, minus_hi, 4, begins, centred, h_sum, hd_sum);
    else
        sum_step(s.x, s.dy, weight ? s.weight : 0, minus_hi, 2, begins, centred, h_sum, hd_sum);
}
ALWAYS void sum_band(const float *x, const float *dy, const float *weight, ptrdiff_t cols, const float *minus_hi, const int centred,
                     lane_sums *h_sum, lane_sums *hd_sum) {
    ptrdiff_t j = 0;
    for (; j + STEP <= cols; j += STEP)
        sum_step(x + j * BAND, dy + j * BAND, weight ? weight + j : 0, minus_hi, 4, j == 0, centred, h_sum, hd_sum);
    if (j < cols)
        sum_last_step(x + j * BAND, dy + j * BAND, weight ? weight + j : 0, cols - j, minus_hi, j == 0, centred, h_sum, hd_sum);
}

/* The constants of a band's rows, as take_gradient has them; whether one of its `rows` rows goes the exact way */
typedef struct {
    float minus_hi[BAND], rstd[BAND], rest[BAND], k1[BAND], slope[BAND];
} band_constants;

NEVER int take_band(const float *x, const float *dy, const float *weight, const double *mean, const double *rstd, int rows,
                    ptrdiff_t cols, int centred, band_constants *out) {
    double m[BAND] = {0}, s[BAND] = {0};
    float minus_hi[BAND];
    lane_sums h_sum, hd_sum;
    int64_t exact = 0;
    for (int r = 0; r < rows; ++r) {
        if (centred) m[r] = mean[r];
        s[r] = rstd[r];
    }
    EACH(i, BAND / WD) store_h(minus_hi + i * WD, -narrow(load_d(m + i * WD)));
    if (centred)
        weight ? sum_band(x, dy, weight, cols, minus_hi, 1, &h_sum, &hd_sum)
               : sum_band(x, dy, 0, cols, minus_hi, 1, &h_sum, &hd_sum);
    else
        weight ? sum_band(x, dy, weight, cols, minus_hi, 0, &h_sum, &hd_sum)
               : sum_band(x, dy, 0, cols, minus_hi, 0, &h_sum, &hd_sum);
    for (int at = 0; at < BAND; at += GROUP) {
        vd h[REGS], hd[REGS];
        gradient_means means;
        group_gradient g;
        EACH(i, REGS) {
            h[i] = add_lanes(&h_sum, at + i * WD);
            hd[i] = add_lanes(&hd_sum, at + i * WD);
        }
        finish_means(h, hd, m + at, (double)cols, centred, &means);
        EACH(i, REGS) set_constants(load_d(m + at + i * WD), load_d(s + at + i * WD), &means, i, 1, &g);
        for (int r = 0; r < GROUP && at + r < rows; ++r)
            exact |= g.exact[r];
        memcpy(out->minus_hi + at, g.minus_hi, sizeof g.minus_hi);
        memcpy(out->rstd + at, g.rstd, sizeof g.rstd);
        memcpy(out->rest + at, g.rest, sizeof g.rest);
        memcpy(out->k1 + at, g.k1, sizeof g.k1);
        memcpy(out->slope + at, g.slope, sizeof g.slope);
    }
    return exact != 0;
}

/* In each 16 bytes: the first and third of a's reals, then of b's; the second and fourth */
#if WF == 16
#define EVEN_REALS(a, b) DEAL_OF(vi, a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30)
#define ODD_REALS(a, b) DEAL_OF(vi, a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31)
#elif WF == 8
#define EVEN_REALS(a, b) DEAL_OF(vi, a, b, 0, 2, 8, 10, 4, 6, 12, 14)
#define ODD_REALS(a, b) DEAL_OF(vi, a, b, 1, 3, 9, 11, 5, 7, 13, 15)
#else
#define EVEN_REALS(a, b) DEAL_OF(vi, a, b, 0, 2, 4, 6)
#define ODD_REALS(a, b) DEAL_OF(vi, a, b, 1, 3, 5, 7)
#endif

/* Of four columns, lane by lane of four rows each: (r0 + r1) + (r2 + r3), a strip's terms, the columns side by side */
ALWAYS vf add_strips(const vf column[4]) {
    const vf a = EVEN_REALS(column[0], column[1]) + ODD_REALS(column[0], column[1]);
    const vf b = EVEN_REALS(column[2], column[3]) + ODD_REALS(column[2], column[3]);
    return EVEN_REALS(a, b) + ODD_REALS(a, b);
}

/* n columns (at most four) of a plane of the block's sums += the terms of a vector's strips, one strip after the other */
ALWAYS void add_vector_terms(vf terms, int n, ptrdiff_t pitch, double *sums) {
    float strips[WF];
    store_f(strips, terms);
    for (int i = 0; i < n; i += WD) {
        const int some = n - i < WD ? n - i : WD;
        block_sum sum = load_sum(sums + i, pitch, some);
        EACH(k, WF / STRIP) sum = add_terms(sum, load_wide(strips + k * STRIP + i));
        store_sum(sums + i, pitch, sum, some);
    }
}

/* n columns (at most four) of a vector of rows: dx in place of x, and terms into the block's sums; as compute_columns has it
 * dx = rstd · (h − mean_h − xhat · mean_h_xhat),   h = dy · weight;   dweight += dy · xhat,   dbias += dy */
ALWAYS void differentiate_columns(float *x, const float *dy, const int weighted, const float *weight, vf minus_hi, vf rstd, vf rest,
                                  vf k1, vf slope, int n, ptrdiff_t pitch, double *sums) {
    vf dweight[4] = {0}, dbias[4] = {0};
    EACH(k, 4) {
        if (k >= n) continue;
        const vf dy_k = load_f(dy + k * BAND), d = load_f(x + k * BAND) + minus_hi;
        const vf h = weighted ? dy_k * splat_f(weight[k]) : dy_k;
        dweight[k] = dy_k * multiply_add(d, rstd, rest);
        dbias[k] = dy_k;
        store_f(x + k * BAND, multiply_add(d, slope, h * rstd - k1));
    }
    if (!sums) return;
    add_vector_terms(add_strips(dweight), n, pitch, sums);
    add_vector_terms(add_strips(dbias), n, pitch, sums + PLANES / 2 * pitch);
}

/* A band's columns, vector of rows after vector of rows, whose constants find registers so */
ALWAYS void differentiate_vectors(float *x, const float *dy, const int weighted, const float *weight, const band_constants *c,
                                  ptrdiff_t cols, double *sums) {
    for (int at = 0; at < BAND; at += WF) {
        const vf minus_hi = load_f(c->minus_hi + at), rstd = load_f(c->rstd + at), rest = load_f(c->rest + at),
                 k1 = load_f(c->k1 + at);
        const vf slope = load_f(c->slope + at);
        ptrdiff_t j = 0;
#define COLUMNS(N)                                                                                                                 \
    differentiate_columns(x + j * BAND + at, dy + j * BAND + at, weighted, weight + j, minus_hi, rstd, rest, k1, slope, N, cols,   \
                          sums ? sums + j : 0)
        for (; j + 4 <= cols; j += 4)
            COLUMNS(4);
        if (j < cols) COLUMNS((int)(cols - j));
#undef COLUMNS
    }
}
NEVER void differentiate_band(float *x, const float *dy, const float *weight, const band_constants *c, ptrdiff_t cols,
                              double *sums) {
    if (weight)
        differentiate_vectors(x, dy, 1, weight, c, cols, sums);
    else
        differentiate_vectors(x, dy, 0, x, c, cols, sums);
}

/* dx of a band's rows in place of x, and their terms into the block's sums; where one goes the exact way, all go the usual one */
ALWAYS void backward_band(float *x, const float *dy, const float *weight, const double *mean, const double *rstd, int rows,
                          ptrdiff_t cols, const int centred, double *sums, float *room) {
    band_constants c;
    if (take_band(x, dy, weight, mean, rstd, rows, cols, centred, &c))
        differentiate_turned(x, dy, weight, mean, rstd, rows, cols, centred, sums, room);
    else
        differentiate_band(x, dy, weight, &c, cols, sums);
}

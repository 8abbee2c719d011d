/* gradient_sums.h: the two means that dx needs of a row, mean(h) and mean(h · (x − mean)), and the constants made of them, for a
 * group of rows. Knows sums and their errors.
 *
 * h = dy · weight is rounded to the row's type first, and only then summed.
 *   raw       float32 only. Σ h and Σ h · x in float64, products exact; good while |mean| · rstd ≤ 2^17.
 *   centred   Σ (x − mean), Σ h and Σ h · (x − mean), trees of four and TwoSum. The first gives back what rounding the mean to
 *             float64 took away.
 *   exact     exact_gradient.h */

/* The longest rows that are taken in whole groups: a group's x and dy are read twice, and stay in the second-level cache between. */
#define GROUP_COLUMNS (16384 / (ptrdiff_t)sizeof(real))

/* What the strip pass needs of each row: dx = (h · rstd − k1) − d · k2, d = (x − hi) − lo, xhat = d · rstd */
typedef struct {
    real hi[GROUP], lo[GROUP], rstd[GROUP], k1[GROUP], k2[GROUP];
    int64_t exact[GROUP]; /* not 0: instead of those, the row's exact_row */
    exact_row rows[GROUP];
} group_gradient;

/* Σ d, Σ h and Σ h · d of a group: eight lanes a row, each an unevaluated pair */
typedef struct {
    vd d[GROUP][REGS], d_error[GROUP][REGS], h[GROUP][REGS], h_error[GROUP][REGS], hd[GROUP][REGS], hd_error[GROUP][REGS];
} gradient_lanes;

/* The same sums of all rows of a group: WD rows a register */
typedef struct {
    vd lo[REGS], mean_h[REGS], mean_hd[REGS];
} gradient_means;

ALWAYS void center_gradient(const real *x, const real *dy, const real *weight, ptrdiff_t cols, double mean, int r,
                            gradient_lanes *out) {
    const vd m = splat_d(mean);
    vd d_sum[REGS], d_error[REGS], h_sum[REGS], h_error[REGS], hd_sum[REGS], hd_error[REGS];
    EACH(i, REGS) d_sum[i] = d_error[i] = h_sum[i] = h_error[i] = hd_sum[i] = hd_error[i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += TREE) {
        EACH(k, TREE * (int)sizeof(real) / 64) {
            fetch_ahead(x + j + k * (64 / (int)sizeof(real)));
            fetch_ahead(dy + j + k * (64 / (int)sizeof(real)));
        }
        EACH(i, REGS) {
            vd d[4], h[4];
            if (j + TREE <= cols) {
                EACH(k, 4) {
                    const ptrdiff_t at = j + 8 * k + i * WD;
                    d[k] = minus_d(load_double(x + at), m);
                    h[k] = product(dy + at, weight ? weight + at : 0);
                }
            } else {
                EACH(k, 4) {
                    const ptrdiff_t at = j + 8 * k + i * WD;
                    const int n = left_of(at, cols);
                    d[k] = h[k] = (vd){0};
                    if (n > 0) {
                        d[k] = keep_part(load_part_double(x + at, n) - m, n);
                        h[k] = product_part(dy + at, weight ? weight + at : 0, n);
                    }
                }
            }
            two_sum(&d_sum[i], &d_error[i], (d[0] + d[1]) + (d[2] + d[3]));
            two_sum(&h_sum[i], &h_error[i], (h[0] + h[1]) + (h[2] + h[3]));
            two_sum(&hd_sum[i], &hd_error[i], plus_d(h[0] * d[0], h[1] * d[1]) + plus_d(h[2] * d[2], h[3] * d[3]));
        }
    }
    EACH(i, REGS) {
        out->d[r][i] = d_sum[i];
        out->d_error[r][i] = d_error[i];
        out->h[r][i] = h_sum[i];
        out->h_error[r][i] = h_error[i];
        out->hd[r][i] = hd_sum[i];
        out->hd_error[r][i] = hd_error[i];
    }
}

/* The centred sums of the rows that want them; what stands for the others is 0. */
NEVER void center_gradients(const real *x, const real *dy, const real *weight, const double *mean, int rows, ptrdiff_t cols,
                            const int64_t *wanted, gradient_means *out) {
    gradient_lanes lanes;
    vd d[REGS], d_error[REGS], h[REGS], h_error[REGS], hd[REGS], hd_error[REGS];
    for (int r = 0; r < GROUP; ++r) {
        if (r < rows && wanted[r]) {
            center_gradient(x + r * cols, dy + r * cols, weight, cols, mean[r], r, &lanes);
        } else {
            EACH(i, REGS) {
                lanes.d[r][i] = lanes.d_error[r][i] = lanes.h[r][i] = lanes.h_error[r][i] = (vd){0};
                lanes.hd[r][i] = lanes.hd_error[r][i] = (vd){0};
            }
        }
    }
    sum_lanes(lanes.d, lanes.d_error, 1, d, d_error);
    sum_lanes(lanes.h, lanes.h_error, 1, h, h_error);
    sum_lanes(lanes.hd, lanes.hd_error, 1, hd, hd_error);
    EACH(i, REGS) {
        const vd n = splat_d((double)cols);
        const vd total_h = h[i] + h_error[i];
        out->lo[i] = (d[i] + d_error[i]) / n;
        out->mean_h[i] = total_h / n;
        two_sum(&hd[i], &hd_error[i], -(out->lo[i] * total_h));
        out->mean_hd[i] = (hd[i] + hd_error[i]) / n;
    }
}

#if REAL_IS_F32

/* Σ h and Σ h · x of `rows` rows in float64, a chunk's lanes: element j in lane j mod 16, then lane i + lane i + 8 */
ALWAYS void sum_gradient_chunk(const float *x, const float *dy, const float *weight, ptrdiff_t pitch, ptrdiff_t cols,
                               const int rows, vd (*h_sum)[REGS], vd (*hx_sum)[REGS]) {
    vd s[ABREAST][2 * REGS], q[ABREAST][2 * REGS];
    EACH(r, rows) EACH(i, 2 * REGS) s[r][i] = q[r][i] = (vd){0};
    ptrdiff_t j = 0;
    for (; j + 16 <= cols; j += 16) {
        EACH(r, rows) {
            fetch_ahead(x + r * pitch + j);
            fetch_ahead(dy + r * pitch + j);
        }
        EACH(r, rows) EACH(i, 2 * REGS) {
            const ptrdiff_t at = j + i * WD;
            const vd h = product(dy + r * pitch + at, weight ? weight + at : 0);
            s[r][i] += h;
            q[r][i] = add_exact_product(h, load_wide(x + r * pitch + at), q[r][i]);
        }
    }
    if (j < cols) {
        EACH(r, rows) EACH(i, 2 * REGS) {
            const ptrdiff_t at = j + i * WD;
            const int n = left_of(at, cols);
            if (n > 0) {
                const vd h = product_part(dy + r * pitch + at, weight ? weight + at : 0, n);
                s[r][i] += h;
                q[r][i] = add_exact_product(h, load_part_wide(x + r * pitch + at, n), q[r][i]);
            }
        }
    }
    EACH(r, rows) EACH(i, REGS) {
        h_sum[r][i] = s[r][i] + s[r][i + REGS];
        hx_sum[r][i] = q[r][i] + q[r][i + REGS];
    }
}

/* Σ h and Σ h · x of a group's rows, chunk after chunk */
ALWAYS void sum_gradients(const float *x, const float *dy, const float *weight, int rows, ptrdiff_t cols, vd *h_sum, vd *hx_sum) {
    vd s[GROUP][REGS], q[GROUP][REGS];
    EACH(i, REGS) h_sum[i] = hx_sum[i] = (vd){0};
    for (int r = rows; r < GROUP; ++r)
        EACH(i, REGS) s[r][i] = q[r][i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += CHUNK) {
        const ptrdiff_t width = cols - j < CHUNK ? cols - j : CHUNK;
        const float *w = weight ? weight + j : 0;
        int r = 0;
        for (; r + ABREAST <= rows; r += ABREAST)
            sum_gradient_chunk(x + r * cols + j, dy + r * cols + j, w, cols, width, ABREAST, s + r, q + r);
        for (; r < rows; ++r)
            sum_gradient_chunk(x + r * cols + j, dy + r * cols + j, w, cols, width, 1, s + r, q + r);
        vd part[REGS], part_hx[REGS];
        sum_lanes(s, 0, 0, part, 0);
        sum_lanes(q, 0, 0, part_hx, 0);
        EACH(i, REGS) {
            h_sum[i] += part[i];
            hx_sum[i] += part_hx[i];
        }
    }
}

#endif

/* Whether dy · weight is 0 in every column, because one of the two is: a padding row's gradient, a frozen weight. */
ALWAYS int is_without_gradient(const real *dy, const real *weight, ptrdiff_t cols) {
    for (ptrdiff_t j = 0; j < cols; j += 64) {
        const ptrdiff_t end = cols - j < 64 ? cols : j + 64;
        int any = 0;
        for (ptrdiff_t k = j; k < end; ++k)
            any |= dy[k] != 0 && (!weight || weight[k] != 0);
        if (any) return 0;
    }
    return 1;
}

/* WD rows' constants from their means. exact: where a test fails, NaN included. */
ALWAYS void set_constants(vd mean, vd rstd, vd lo, vd mean_h, vd mean_hd, int at, group_gradient *g) {
    const vd size = magnitude(mean_h) + magnitude(mean_hd) * rstd;
    vm plain = (rstd >= 1 / RSTD_MAX) & (rstd <= RSTD_MAX) & (size >= SCALE_MIN) & (size * rstd <= SCALE_MAX);
    const vd k2 = (rstd * rstd) * (rstd * mean_hd);
#if REAL_IS_F32
    /* k1 from the rounded rstd, so that equal h cancel to 0 exactly */
    const vh short_rstd = narrow(rstd), hi = narrow(mean);
    const vd rest = (mean - widen(hi)) + lo;
    const vh short_lo = narrow(rest);
    const vd left = magnitude(rest - widen(short_lo));
    plain &= (left * rstd <= 0x1p-27) & ((k2 == 0) | ((magnitude(k2) >= 0x1p-126) & (magnitude(k2) <= SCALE_MAX)));
    store_h(g->hi + at, hi);
    store_h(g->lo + at, short_lo);
    store_h(g->rstd + at, short_rstd);
    store_h(g->k1 + at, narrow(widen(short_rstd) * mean_h));
    store_h(g->k2 + at, narrow(k2));
#else
    store_d(g->hi + at, mean);
    store_d(g->lo + at, lo);
    store_d(g->rstd + at, rstd);
    store_d(g->k1 + at, rstd * mean_h);
    store_d(g->k2 + at, k2);
#endif
    store_m(g->exact + at, ~plain);
}

/* The exact way for the rows that are marked for it, but for those where h is 0 throughout: their constants are right as they are.
 * Returns whether any is left. */
NEVER int exact_gradients(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd,
                          const double *mean_h, const double *mean_hd, int rows, ptrdiff_t cols, group_gradient *g) {
    int any = 0;
    for (int r = 0; r < rows; ++r) {
        const int in_range = rstd[r] >= 1 / RSTD_MAX && rstd[r] <= RSTD_MAX;
        if (!g->exact[r]) continue;
        if (in_range && mean_h[r] == 0 && mean_hd[r] == 0 && is_without_gradient(dy + r * cols, weight, cols)) {
            g->exact[r] = 0;
        } else {
            scale_gradient(x + r * cols, dy + r * cols, weight, cols, mean[r], rstd[r], &g->rows[r]);
            any = 1;
        }
    }
    return any;
}

/* The constants of `rows` rows (at most GROUP); returns whether any goes the exact way */
ALWAYS int take_gradient_sums(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd, int rows,
                              ptrdiff_t cols, group_gradient *g) {
    double m[GROUP] = {0}, s[GROUP] = {0}, mean_h[GROUP], mean_hd[GROUP];
    gradient_means means;
    for (int r = 0; r < rows; ++r) {
        m[r] = mean[r];
        s[r] = rstd[r];
    }
#if REAL_IS_F32
    const vd share = splat_d(1 / (double)cols);
    int64_t wanted[GROUP], any = 0;
    sum_gradients(x, dy, weight, rows, cols, means.mean_h, means.mean_hd);
    EACH(i, REGS) {
        const vd mean_i = load_d(m + i * WD);
        means.lo[i] = (vd){0};
        means.mean_h[i] *= share;
        means.mean_hd[i] = means.mean_hd[i] * share - mean_i * means.mean_h[i];
        const vm good = magnitude(mean_i) * load_d(s + i * WD) <= 0x1p17;
        store_m(wanted + i * WD, ~good);
    }
    for (int r = 0; r < rows; ++r)
        any |= wanted[r];
    if (any) {
        gradient_means centred;
        center_gradients(x, dy, weight, m, rows, cols, wanted, &centred);
        EACH(i, REGS) EACH(k, WD) {
            if (!wanted[i * WD + k]) continue;
            means.lo[i][k] = centred.lo[i][k];
            means.mean_h[i][k] = centred.mean_h[i][k];
            means.mean_hd[i][k] = centred.mean_hd[i][k];
        }
    }
#else
    static const int64_t all[GROUP] = {1, 1, 1, 1, 1, 1, 1, 1};
    center_gradients(x, dy, weight, m, rows, cols, all, &means);
#endif
    int64_t some_exact = 0;
    EACH(i, REGS) set_constants(load_d(m + i * WD), load_d(s + i * WD), means.lo[i], means.mean_h[i], means.mean_hd[i], i * WD, g);
    for (int r = 0; r < rows; ++r)
        some_exact |= g->exact[r];
    if (some_exact) {
        EACH(i, REGS) {
            store_d(mean_h + i * WD, means.mean_h[i]);
            store_d(mean_hd + i * WD, means.mean_hd[i]);
        }
        some_exact = exact_gradients(x, dy, weight, m, s, mean_h, mean_hd, rows, cols, g);
    }
    return some_exact != 0;
}

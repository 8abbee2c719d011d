/* gradient_sums.h: the two means that dx needs of a row, mean(h) and mean(h · (x − mean)). Knows sums and their errors.
 *
 * h = dy · weight is rounded to the row's type first, and only then summed.
 *   raw       float32 only. Σ h and Σ h · x in float64, products exact; good while |mean| · rstd ≤ 2^17.
 *   centred   Σ (x − mean), Σ h and Σ h · (x − mean), trees of four and TwoSum. The first gives back what rounding the mean to
 *             float64 took away.
 *   exact     exact.h */

/* Σ d, Σ h and Σ h · d of one row: eight lanes, each an unevaluated pair */
typedef struct {
    double d[8], d_error[8], h[8], h_error[8], hd[8], hd_error[8];
} gradient_lanes;

ALWAYS void center_gradient(const real *x, const real *dy, const real *weight, ptrdiff_t cols, double mean, gradient_lanes *out) {
    enum { N = 8 / WD };
    const vd m = splat_d(mean);
    vd d_sum[N], d_error[N], h_sum[N], h_error[N], hd_sum[N], hd_error[N];
    EACH(i, N) d_sum[i] = d_error[i] = h_sum[i] = h_error[i] = hd_sum[i] = hd_error[i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += TREE) {
        EACH(i, N) {
            vd d[4], h[4];
            if (j + TREE <= cols) {
                EACH(k, 4) {
                    const ptrdiff_t at = j + 8 * k + i * WD;
                    d[k] = load_double(x + at) - m;
                    h[k] = product(dy + at, weight ? weight + at : 0);
                }
            } else {
                EACH(k, 4) {
                    const ptrdiff_t at = j + 8 * k + i * WD;
                    const int n = cols - at < 0 ? 0 : cols - at > WD ? WD : (int)(cols - at);
                    d[k] = h[k] = (vd){0};
                    if (n > 0) {
                        d[k] = keep_part(load_part_double(x + at, n) - m, n);
                        h[k] = product_part(dy + at, weight ? weight + at : 0, n);
                    }
                }
            }
            two_sum(&d_sum[i], &d_error[i], (d[0] + d[1]) + (d[2] + d[3]));
            two_sum(&h_sum[i], &h_error[i], (h[0] + h[1]) + (h[2] + h[3]));
            two_sum(&hd_sum[i], &hd_error[i], (h[0] * d[0] + h[1] * d[1]) + (h[2] * d[2] + h[3] * d[3]));
        }
    }
    EACH(i, N) {
        store_d(out->d + i * WD, d_sum[i]);
        store_d(out->d_error + i * WD, d_error[i]);
        store_d(out->h + i * WD, h_sum[i]);
        store_d(out->h_error + i * WD, h_error[i]);
        store_d(out->hd + i * WD, hd_sum[i]);
        store_d(out->hd_error + i * WD, hd_error[i]);
    }
}

/* lo, mean(h) and mean(h · (x − mean − lo)) of a group of rows from their lanes */
ALWAYS void finish_gradient(const gradient_lanes *rows, double cols, double *lo, double *mean_h, double *mean_hd) {
    for (int r = 0; r < GROUP; r += WD) {
        vd d[8], d_error[8], h[8], h_error[8], hd[8], hd_error[8];
        EACH(k, WD) EACH(i, 8) {
            d[i][k] = rows[r + k].d[i];
            d_error[i][k] = rows[r + k].d_error[i];
            h[i][k] = rows[r + k].h[i];
            h_error[i][k] = rows[r + k].h_error[i];
            hd[i][k] = rows[r + k].hd[i];
            hd_error[i][k] = rows[r + k].hd_error[i];
        }
        for (int half = 4; half > 0; half /= 2) {
            for (int i = 0; i < half; ++i) {
                d_error[i] += d_error[i + half];
                two_sum(&d[i], &d_error[i], d[i + half]);
                h_error[i] += h_error[i + half];
                two_sum(&h[i], &h_error[i], h[i + half]);
                hd_error[i] += hd_error[i + half];
                two_sum(&hd[i], &hd_error[i], hd[i + half]);
            }
        }
        const vd n = splat_d(cols);
        const vd rest = (d[0] + d_error[0]) / n;
        const vd total_h = h[0] + h_error[0];
        two_sum(&hd[0], &hd_error[0], -(rest * total_h));
        store_d(lo + r, rest);
        store_d(mean_h + r, total_h / n);
        store_d(mean_hd + r, (hd[0] + hd_error[0]) / n);
    }
}

#if REAL_IS_F32
/* Σ h and Σ h · x in float64: element j in lane j mod 16, lane i + lane i + 8, then sum_eight, chunk after chunk */
ALWAYS void sum_gradient(const float *x, const float *dy, const float *weight, ptrdiff_t cols, double *h_sum, double *hx_sum) {
    enum { N = 16 / WD };
    *h_sum = *hx_sum = 0;
    for (ptrdiff_t chunk = 0; chunk < cols; chunk += CHUNK) {
        const ptrdiff_t end = cols - chunk < CHUNK ? cols : chunk + CHUNK;
        vd s[N], q[N];
        EACH(i, N) s[i] = q[i] = (vd){0};
        ptrdiff_t j = chunk;
        for (; j + 16 <= end; j += 16) {
            EACH(i, N) {
                const ptrdiff_t at = j + i * WD;
                vd h = product(dy + at, weight ? weight + at : 0);
                s[i] += h;
                q[i] = add_exact_product(h, load_wide(x + at), q[i]);
            }
        }
        if (j < end) {
            EACH(i, N) {
                const ptrdiff_t at = j + i * WD;
                const int n = end - at < 0 ? 0 : end - at > WD ? WD : (int)(end - at);
                if (n > 0) {
                    vd h = product_part(dy + at, weight ? weight + at : 0, n);
                    s[i] += h;
                    q[i] = add_exact_product(h, load_part_wide(x + at, n), q[i]);
                }
            }
        }
        EACH(i, N / 2) {
            s[i] += s[i + N / 2];
            q[i] += q[i + N / 2];
        }
        *h_sum += sum_eight(s);
        *hx_sum += sum_eight(q);
    }
}
#endif

/* The row's constants for the strip pass. The tests are written so that NaN fails them. */
ALWAYS void set_constants(row_gradient *g, double mean, double lo, double rstd, double mean_h, double mean_hd) {
    /* k1 from the rounded rstd, so that equal h cancel to 0 exactly */
    const double k1 = (real)rstd * mean_h, k2 = (rstd * rstd) * (rstd * mean_hd);
    const double size = __builtin_fabs(mean_h) + __builtin_fabs(mean_hd) * rstd;
    int plain = rstd >= 1 / RSTD_MAX && rstd <= RSTD_MAX && size >= SCALE_MIN && size * rstd <= SCALE_MAX;
#if REAL_IS_F32
    const double k2_size = __builtin_fabs(k2);
    double left;
    g->hi = (float)mean;
    g->lo = (float)((mean - g->hi) + lo);
    left = ((mean - g->hi) + lo) - g->lo;
    plain = plain && __builtin_fabs(left) * rstd <= 0x1p-27 && (k2_size == 0 || (k2_size >= 0x1p-126 && k2_size <= SCALE_MAX));
#else
    g->hi = mean;
    g->lo = lo;
#endif
    g->rstd = (real)rstd;
    g->k1 = (real)k1;
    g->k2 = (real)k2;
    g->exact = !plain;
}

/* Whether dy · weight is 0 in every column, because one of the two is: a padding row's gradient, a frozen weight. */
ALWAYS int is_without_gradient(const real *dy, const real *weight, ptrdiff_t cols) {
    for (ptrdiff_t j = 0; j < cols; j += W) {
        const int n = cols - j < W ? (int)(cols - j) : W;
        const vec a = n == W ? load(dy + j) : load_part(dy + j, n);
        const vec b = !weight ? splat(1) : n == W ? load(weight + j) : load_part(weight + j, n);
        if (any_lane((a != 0) & (b != 0))) return 0;
    }
    return 1;
}

/* The constants of `rows` rows (at most GROUP) */
ALWAYS void take_gradient_sums(const real *x, const real *dy, const real *weight, const double *mean, const double *rstd, int rows,
                               ptrdiff_t cols, row_gradient *out) {
    double lo[GROUP] = {0}, mean_h[GROUP], mean_hd[GROUP];
    gradient_lanes lanes[GROUP];
#if REAL_IS_F32
    for (int r = 0; r < rows; ++r) {
        double h, hx;
        if (__builtin_fabs(mean[r]) * rstd[r] <= 0x1p17) {
            sum_gradient(x + r * cols, dy + r * cols, weight, cols, &h, &hx);
            mean_h[r] = h / (double)cols;
            mean_hd[r] = hx / (double)cols - mean[r] * mean_h[r];
        } else {
            double rest[GROUP], h_mean[GROUP], hd_mean[GROUP];
            memset(lanes, 0, sizeof lanes);
            center_gradient(x + r * cols, dy + r * cols, weight, cols, mean[r], &lanes[0]);
            finish_gradient(lanes, (double)cols, rest, h_mean, hd_mean);
            lo[r] = rest[0];
            mean_h[r] = h_mean[0];
            mean_hd[r] = hd_mean[0];
        }
    }
#else
    for (int r = 0; r < rows; ++r)
        center_gradient(x + r * cols, dy + r * cols, weight, cols, mean[r], &lanes[r]);
    for (int r = rows; r < GROUP; ++r)
        memset(&lanes[r], 0, sizeof lanes[r]);
    finish_gradient(lanes, (double)cols, lo, mean_h, mean_hd);
#endif
    for (int r = 0; r < rows; ++r) {
        row_gradient *g = &out[r];
        set_constants(g, mean[r], lo[r], rstd[r], mean_h[r], mean_hd[r]);
        /* where h is 0 throughout the constants are right as they are */
        const int none = mean_h[r] == 0 && mean_hd[r] == 0 && rstd[r] >= 1 / RSTD_MAX && rstd[r] <= RSTD_MAX;
        if (g->exact && none && is_without_gradient(dy + r * cols, weight, cols)) g->exact = 0;
        if (g->exact) scale_gradient(x + r * cols, dy + r * cols, weight, cols, mean[r], rstd[r], g);
    }
}

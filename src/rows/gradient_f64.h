/* gradient_f64.h: float64's gradient sums: Σ (x − mean), Σ h and Σ h · (x − mean), trees of four and TwoSum. The first gives back what
 * rounding the mean to float64 took away. */

/* Σ d, Σ h and Σ h · d of a group: eight lanes a row, each an unevaluated pair */
typedef struct {
    vd d[GROUP][REGS], d_error[GROUP][REGS], h[GROUP][REGS], h_error[GROUP][REGS], hd[GROUP][REGS], hd_error[GROUP][REGS];
} gradient_lanes;

/* Register i of each of the four vectors of eight lanes that make up the tree at j of h = dy · weight; 0 past the end */
ALWAYS void load_products(const double *dy, const double *weight, ptrdiff_t j, int i, ptrdiff_t cols, vd h[4]) {
    const double *p = dy + j + i * WD, *w = weight ? weight + j + i * WD : 0;
    if (j + TREE <= cols) {
        EACH(k, 4) h[k] = product(p + 8 * k, w ? w + 8 * k : 0);
        return;
    }
    EACH(k, 4) {
        const int n = left_of(j + i * WD + 8 * k, cols);
        h[k] = n == 0 ? (vd){0} : product_part(p + 8 * k, w ? w + 8 * k : 0, n);
    }
}

ALWAYS void center_gradient(const double *x, const double *dy, const double *weight, ptrdiff_t cols, double mean, int r, int far,
                            gradient_lanes *out) {
    const vd m = splat_d(mean);
    vd d_sum[REGS], d_error[REGS], h_sum[REGS], h_error[REGS], hd_sum[REGS], hd_error[REGS];
    EACH(i, REGS) d_sum[i] = d_error[i] = h_sum[i] = h_error[i] = hd_sum[i] = hd_error[i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += TREE) {
        if (far) {
            fetch_ahead(x + j, TREE);
            fetch_ahead(dy + j, TREE);
        }
        EACH(i, REGS) {
            vd d[4], h[4];
            load_centred(x, j, i, cols, m, d);
            load_products(dy, weight, j, i, cols, h);
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

/* lo, mean(h) and mean(h · (x − mean)) of `rows` rows */
ALWAYS void take_means(const double *x, const double *dy, const double *weight, const double *mean, int rows, ptrdiff_t cols,
                       int far, int wanted, gradient_means *means) {
    (void)wanted; /* lo is, for dweight */
    gradient_lanes lanes;
    vd d[REGS], d_error[REGS], h[REGS], h_error[REGS], hd[REGS], hd_error[REGS];
    for (int r = 0; r < GROUP; ++r) {
        if (r < rows) {
            center_gradient(x + r * cols, dy + r * cols, weight, cols, mean[r], r, far, &lanes);
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
        const vd total_h = h[i] + h_error[i], lo = (d[i] + d_error[i]) / n;
        two_sum(&hd[i], &hd_error[i], -(lo * total_h));
        means->lo[i] = lo;
        means->mean_h[i] = total_h / n;
        means->mean_hd[i] = (hd[i] + hd_error[i]) / n;
    }
}

/* The rows for which lo is no more than a quarter of σ */
ALWAYS vm is_fit(vd mean, vd rstd, vd lo) {
    (void)mean;
    return magnitude(lo) * rstd <= 0.25;
}

/* WD rows' constants as they are. Returns the rows for which that is good enough: all. */
ALWAYS vm round_constants(vd mean, vd rstd, vd lo, vd mean_h, vd k2, vd size, int at, group_gradient *g) {
    (void)size;
    store_d(g->hi + at, mean);
    store_d(g->rstd + at, rstd);
    store_d(g->lo_rstd + at, lo * rstd);
    store_d(g->k1 + at, rstd * mean_h - lo * k2);
    store_d(g->k2 + at, k2);
    return ~(vm){0};
}

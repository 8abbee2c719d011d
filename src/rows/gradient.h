/* gradient.h: the two means that dx needs of a row, mean(h) and mean(h · (x − mean)), and the constants made of them, for a
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

/* Register i of each of the four vectors of eight lanes that make up the tree at j of h = dy · weight; 0 past the end */
ALWAYS void load_products(const real *dy, const real *weight, ptrdiff_t j, int i, ptrdiff_t cols, vd h[4]) {
    const real *p = dy + j + i * WD, *w = weight ? weight + j + i * WD : 0;
    if (j + TREE <= cols) {
        EACH(k, 4) h[k] = product(p + 8 * k, w ? w + 8 * k : 0);
        return;
    }
    EACH(k, 4) {
        const int n = left_of(j + i * WD + 8 * k, cols);
        h[k] = n == 0 ? (vd){0} : product_part(p + 8 * k, w ? w + 8 * k : 0, n);
    }
}

ALWAYS void center_gradient(const real *x, const real *dy, const real *weight, ptrdiff_t cols, double mean, int r,
                            gradient_lanes *out) {
    const vd m = splat_d(mean);
    vd d_sum[REGS], d_error[REGS], h_sum[REGS], h_error[REGS], hd_sum[REGS], hd_error[REGS];
    EACH(i, REGS) d_sum[i] = d_error[i] = h_sum[i] = h_error[i] = hd_sum[i] = hd_error[i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += TREE) {
        EACH(k, TREE_LINES) {
            fetch_ahead(x + j + k * (TREE / TREE_LINES));
            fetch_ahead(dy + j + k * (TREE / TREE_LINES));
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

/* The means of the rows that want them, the centred way; the others' stay. */
NEVER void center_gradients(const real *x, const real *dy, const real *weight, const double *mean, int rows, ptrdiff_t cols,
                            const int64_t *wanted, gradient_means *means) {
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
        const vd total_h = h[i] + h_error[i], lo = (d[i] + d_error[i]) / n;
        const vm mask = load_m(wanted + i * WD);
        two_sum(&hd[i], &hd_error[i], -(lo * total_h));
        means->lo[i] = pick(mask, lo, means->lo[i]);
        means->mean_h[i] = pick(mask, total_h / n, means->mean_h[i]);
        means->mean_hd[i] = pick(mask, (hd[i] + hd_error[i]) / n, means->mean_hd[i]);
    }
}

/* split.h: layer norm in pieces, each of which takes the statistics of its rows, or their sums, as it is given them: what a row has on
 * other machines is in them.
 *
 * What a float64 result may be off by at most, in halves of an epsilon, beside what the numbers given are (float32: 1, of the result):
 *   y    x − mean 1, · rstd 1, · weight 1, + bias 1: 4.
 *   dx   of |h|: h 1, two subtractions 2, · rstd 1: 4. Of mean|h|: h 1, Σ h 2, / count 1, two subtractions 2, · rstd 1: 7. Of
 *        m · mean(|h| · m): h 1, xhat 2, their product 1, Σ 2, / count 1; xhat 2, the product 1, one subtraction 1, · rstd 1: 12.
 * With a shift xhat takes one rounding more, of x − shift. */

ALWAYS row_center center_of(const ln_operands *a, ptrdiff_t row) {
    const vd mean = splat_d(a->mean[row]), rstd = splat_d(a->rstd[row]);
    return a->shift ? (row_center){splat_d(a->shift[row]), mean, rstd} : (row_center){mean, (vd){0}, rstd};
}

/* y = xhat · weight + bias */
NEVER void normalize_body(const ln_operands *a, ptrdiff_t first, ptrdiff_t last, double *sums) {
    const real *weight = a->weight, *bias = a->bias;
    (void)sums;
    for (ptrdiff_t row = first; row < last; ++row) {
        const row_center c = center_of(a, row);
        const real *x = (const real *)a->x + row * a->cols;
        real *y = (real *)a->out + row * a->cols;
        ALONG_ROW(a->cols, j, i, n, {
            vd y_j = xhat_at(x + j, n, &c);
            if (weight) y_j = y_j * load_n_double(weight + j, n);
            if (bias) y_j = y_j + load_n_double(bias + j, n);
            store_n_double(y + j, y_j, n);
        })
    }
}
PIECE_KERNEL(normalize_rows, normalize_body)

/* sum_h = Σ h, sum_h_xhat = Σ h · xhat, h = dy · weight, along each row; Σ dy · xhat and Σ dy down the block's columns */
NEVER void backward_sums_body(const ln_operands *a, ptrdiff_t first, ptrdiff_t last, double *sums) {
    const ptrdiff_t cols = a->cols;
    const real *weight = a->weight;
    memset(sums, 0, (size_t)(PLANES * cols) * sizeof *sums);
    for (ptrdiff_t row = first; row < last; ++row) {
        const row_center c = center_of(a, row);
        const real *x = (const real *)a->x + row * cols, *dy = (const real *)a->dy + row * cols;
        row_sum h, h_xhat;
        clear_row_sum(&h);
        clear_row_sum(&h_xhat);
        ALONG_ROW(cols, j, i, n, {
            const vd xhat = xhat_at(x + j, n, &c), dy_j = load_n_double(dy + j, n);
            const vd h_j = product_at(dy + j, weight ? weight + j : 0, n);
            add_to_row_sum(&h, i, h_j);
            add_to_row_sum(&h_xhat, i, h_j * xhat);
            add_to_plane(sums + j, cols, dy_j * xhat, n);
            add_to_plane(sums + PLANES / 2 * cols + j, cols, dy_j, n);
        })
        a->sum_h[row] = total_of_row(&h);
        a->sum_h_xhat[row] = total_of_row(&h_xhat);
    }
}
PIECE_KERNEL(backward_sums_rows, backward_sums_body)

/* dx = rstd · (h − sum_h / count − xhat · sum_h_xhat / count) */
NEVER void backward_apply_body(const ln_operands *a, ptrdiff_t first, ptrdiff_t last, double *sums) {
    const real *weight = a->weight;
    (void)sums;
    for (ptrdiff_t row = first; row < last; ++row) {
        const row_center c = center_of(a, row);
        const real *x = (const real *)a->x + row * a->cols, *dy = (const real *)a->dy + row * a->cols;
        const vd mean_h = splat_d(a->sum_h[row] / a->count[row]), mean_h_xhat = splat_d(a->sum_h_xhat[row] / a->count[row]);
        real *dx = (real *)a->out + row * a->cols;
        ALONG_ROW(a->cols, j, i, n, {
            const vd h = product_at(dy + j, weight ? weight + j : 0, n);
            store_n_double(dx + j, ((h - mean_h) - xhat_at(x + j, n, &c) * mean_h_xhat) * c.rstd, n);
        })
    }
}
PIECE_KERNEL(backward_apply_rows, backward_apply_body)

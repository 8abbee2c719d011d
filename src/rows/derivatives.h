/* derivatives.h: derivatives of layer norm along a direction, and of its backward pass. Knows whole rows.
 *
 * Both are made of the projection P(v) = rstd · (v − mean(v) − xhat · mean(v · xhat)), which takes a tangent of x to one of xhat, and,
 * as it is symmetric, a gradient with respect to xhat to one with respect to x.
 *
 * What a float64 result may be off by at most, in halves of an epsilon (float32: 1, of the result), m ≥ |xhat|:
 *   xhat   x − mean 1, in lo 1, − lo 1, · rstd 1, rstd 1: 5 of m.
 *   P(v)   of m · mean(|v| · m), its longest way: xhat 5, · v 1, Σ 2, / D 1; xhat 5, their product 1, one subtraction 1, · rstd 1,
 *          rstd 1: 18. dy and gdy take · weight and two additions more, 21; gweight · dy and its sum, 20.
 *   gx     of mean(|a| · m) · P(h): mean(a · xhat) 9, P(h) and h 19, their product 1, two additions 2, · rstd 1, rstd 1, one
 *          subtraction 1: 34, and no more on the other ways. */

/* The two means of v that P(v) needs */
typedef struct {
    row_sum v, v_xhat;
} projection_sums;
typedef struct {
    double v, v_xhat;
} projection;

ALWAYS void clear_projection(projection_sums *s) {
    clear_row_sum(&s->v);
    clear_row_sum(&s->v_xhat);
}
ALWAYS void add_to_projection(projection_sums *s, const int i, vd v, vd xhat) {
    add_to_row_sum(&s->v, i, v);
    add_to_row_sum(&s->v_xhat, i, v * xhat);
}
ALWAYS projection finish_projection(const projection_sums *s, double cols) {
    return (projection){total_of_row(&s->v) / cols, total_of_row(&s->v_xhat) / cols};
}
ALWAYS vd project(vd v, vd xhat, const projection *p, const row_center *c) {
    return ((v - splat_d(p->v)) - xhat * splat_d(p->v_xhat)) * c->rstd;
}

/* What a row's xhat is taken from: the mean, what float64 lacks of it, and rstd */
ALWAYS row_center center_whole_row(const real *x, ptrdiff_t cols, double mean, double rstd) {
    const vd m = splat_d(mean);
    row_sum d;
    clear_row_sum(&d);
    ALONG_ROW(cols, j, i, n, {
        const vd d_j = load_n_double(x + j, n) - m;
        add_to_row_sum(&d, i, n == WD ? d_j : keep_part(d_j, n));
    })
    return (row_center){m, splat_d(total_of_row(&d) / (double)cols), splat_d(rstd)};
}

/* WD elements at v, of which n are there; NULL: zeros */
ALWAYS vd load_or_zero(const real *v, ptrdiff_t j, int n) { return v ? load_n_double(v + j, n) : (vd){0}; }
ALWAYS const real *table_row(const void *table, ptrdiff_t row, ptrdiff_t cols) {
    return table ? (const real *)table + row * cols : 0;
}

/* WD elements of P(a) · weight + xhat · ddweight + ddbias */
ALWAYS vd push_forward(const ln_operands *o, ptrdiff_t j, int n, vd p_a, vd xhat) {
    const vd along = o->weight ? p_a * load_n_double((const real *)o->weight + j, n) : p_a;
    return (along + xhat * load_or_zero(o->ddweight, j, n)) + load_or_zero(o->ddbias, j, n);
}

/* dy = P(dx) · weight + xhat · dweight + dbias: tangents, the operands' ddx, ddweight and ddbias */
NEVER void jvp_body(const ln_operands *o, ptrdiff_t first, ptrdiff_t last, double *sums) {
    const ptrdiff_t cols = o->cols;
    (void)sums;
    for (ptrdiff_t row = first; row < last; ++row) {
        const real *x = table_row(o->x, row, cols), *a = table_row(o->ddx, row, cols);
        const row_center c = center_whole_row(x, cols, o->mean[row], o->rstd[row]);
        real *out = (real *)o->out + row * cols;
        projection_sums a_sums;
        clear_projection(&a_sums);
        ALONG_ROW(cols, j, i, n, { add_to_projection(&a_sums, i, load_or_zero(a, j, n), xhat_at(x + j, n, &c)); })
        const projection of_a = finish_projection(&a_sums, (double)cols);
        ALONG_ROW(cols, j, i, n, {
            const vd xhat = xhat_at(x + j, n, &c);
            store_n_double(out + j, push_forward(o, j, n, project(load_or_zero(a, j, n), xhat, &of_a, &c), xhat), n);
        })
    }
}
PIECE_KERNEL(jvp_rows, jvp_body)

/* With a = ddx, h = dy · weight, q = dy · ddweight:
 * gdy = P(a) · weight + xhat · ddweight + ddbias
 * gx = P(q) − rstd · (xhat · mean(a · P(h)) + mean(h · xhat) · P(a) + mean(a · xhat) · P(h))
 * gweight = Σ dy · P(a) down the block's columns */
NEVER void double_backward_body(const ln_operands *o, ptrdiff_t first, ptrdiff_t last, double *sums) {
    const ptrdiff_t cols = o->cols;
    const double count = (double)cols;
    const real *weight = o->weight, *ddweight = o->ddweight;
    memset(sums, 0, (size_t)(PLANES * cols) * sizeof *sums);
    for (ptrdiff_t row = first; row < last; ++row) {
        const real *x = table_row(o->x, row, cols), *a = table_row(o->ddx, row, cols), *dy = table_row(o->dy, row, cols);
        const row_center c = center_whole_row(x, cols, o->mean[row], o->rstd[row]);
        real *gdy = (real *)o->out + row * cols, *gx = (real *)o->gx + row * cols;
        projection_sums a_sums, h_sums, q_sums;
        row_sum ah;
        clear_projection(&a_sums);
        clear_projection(&h_sums);
        clear_projection(&q_sums);
        clear_row_sum(&ah);
        ALONG_ROW(cols, j, i, n, {
            const vd xhat = xhat_at(x + j, n, &c), a_j = load_or_zero(a, j, n);
            const vd h_j = product_at(dy + j, weight ? weight + j : 0, n);
            add_to_projection(&a_sums, i, a_j, xhat);
            add_to_projection(&h_sums, i, h_j, xhat);
            add_to_row_sum(&ah, i, a_j * h_j);
            if (ddweight) add_to_projection(&q_sums, i, product_at(dy + j, ddweight + j, n), xhat);
        })
        const projection of_a = finish_projection(&a_sums, count), of_h = finish_projection(&h_sums, count);
        const projection of_q = finish_projection(&q_sums, count);
        /* mean(a · P(h)) */
        const double mean_a_ph = o->rstd[row] * ((total_of_row(&ah) / count - of_a.v * of_h.v) - of_a.v_xhat * of_h.v_xhat);
        ALONG_ROW(cols, j, i, n, {
            const vd xhat = xhat_at(x + j, n, &c), dy_j = load_n_double(dy + j, n);
            const vd h_j = product_at(dy + j, weight ? weight + j : 0, n);
            const vd q_j = ddweight ? product_at(dy + j, ddweight + j, n) : (vd){0};
            const vd p_a = project(load_or_zero(a, j, n), xhat, &of_a, &c), p_h = project(h_j, xhat, &of_h, &c);
            const vd second = (xhat * splat_d(mean_a_ph) + p_a * splat_d(of_h.v_xhat)) + p_h * splat_d(of_a.v_xhat);
            add_to_plane(sums + j, cols, dy_j * p_a, n);
            store_n_double(gdy + j, push_forward(o, j, n, p_a, xhat), n);
            store_n_double(gx + j, project(q_j, xhat, &of_q, &c) - second * c.rstd, n);
        })
    }
}
PIECE_KERNEL(double_backward_rows, double_backward_body)

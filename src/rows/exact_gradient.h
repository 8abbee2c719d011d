/* exact_gradient.h: the exact way of backward; see exact.h. */

/* A row the exact way, in pairs of float64, of which the second is what the first lacks: h = h' · 2^h_power,
 * xhat = ((x · 2^power − center) − rest) · rstd_fraction · 2^(rstd_power − power),
 * dx = (h' − mean_h − xhat · mean_h_xhat) · rstd_fraction · 2^(rstd_power + h_power)
 * What is rounded, in halves of an epsilon: rstd, 1 in the first terms and 3 in the last; their sum 1; · rstd 1. */
typedef struct {
    double center, rest, rstd_fraction;
    pair mean_h, mean_h_xhat;
    int power, rstd_power, h_power;
} exact_row;

/* dy · weight · 2^-power without leaving the range on the way */
ALWAYS pair scale_h(double dy, double weight, int power) {
    int a, b;
    const double m = split_power(dy, &a), n = split_power(weight, &b), h = m * n;
    return (pair){scale(h, a + b - power), scale(__builtin_fma(m, n, -h), a + b - power)};
}

ALWAYS pair multiply_scalars(pair a, pair b) {
    const double p = a.sum * b.sum;
    return (pair){p, __builtin_fma(a.sum, b.sum, -p) + (a.sum * b.error + a.error * b.sum)};
}

ALWAYS pair scale_xhat(double x, const exact_row *g) {
    pair d = {scale(x, g->power), 0};
    add_to_pair(&d, -g->center);
    add_to_pair(&d, -g->rest);
    const pair xhat = multiply_scalars(d, (pair){g->rstd_fraction, 0});
    const int power = g->rstd_power - g->power;
    return (pair){scale(xhat.sum, power), scale(xhat.error, power)};
}

/* p += a */
ALWAYS void add_pair(pair *p, pair a) {
    add_to_pair(p, a.sum);
    p->error += a.error;
}

ALWAYS pair mean_of(pair sum, double n) {
    vd rest;
    const vd mean = divide_pair(splat_d(sum.sum), splat_d(sum.error), splat_d(n), &rest);
    return (pair){mean[0], rest[0]};
}

/* The constants of a row for the exact way: xhat scaled through x, h = dy · weight through its own exponents. */
NEVER void scale_gradient(const real *x, const real *dy, const real *weight, ptrdiff_t cols, double mean, double rstd, int centred,
                          exact_row *g) {
    int finite;
    const double n = (double)cols;
    g->power = row_power(x, cols, &finite);
    g->center = scale(mean, g->power);
    g->rstd_fraction = split_power(rstd, &g->rstd_power);

    /* the largest power of two in h */
    int top = -100000;
    for (ptrdiff_t j = 0; j < cols; ++j) {
        int a, b = 0;
        double h = split_power(dy[j], &a) * (weight ? split_power(weight[j], &b) : 1);
        if (h != 0 && a + b > top) top = a + b;
    }
    g->h_power = top == -100000 ? 0 : top;

    pair rest = {0, 0}, sum_h = {0, 0}, sum_h_xhat = {0, 0};
    for (ptrdiff_t j = 0; centred && j < cols; ++j)
        add_to_pair(&rest, scale(x[j], g->power) - g->center);
    g->rest = (rest.sum + rest.error) / n;
    for (ptrdiff_t j = 0; j < cols; ++j) {
        const pair h = scale_h(dy[j], weight ? weight[j] : 1, g->h_power);
        if (centred) add_pair(&sum_h, h);
        add_pair(&sum_h_xhat, multiply_scalars(h, scale_xhat(x[j], g)));
    }
    g->mean_h = mean_of(sum_h, n);
    g->mean_h_xhat = mean_of(sum_h_xhat, n);
}

/* dx and the term dy · xhat of n columns */
NEVER void scale_columns(const real *x, const real *dy, const real *weight, int n, const exact_row *g, real *dx, real *term) {
    for (int j = 0; j < n; ++j) {
        const pair xhat = scale_xhat(x[j], g), along = multiply_scalars(xhat, g->mean_h_xhat);
        pair v = scale_h(dy[j], weight ? weight[j] : 1, g->h_power);
        add_pair(&v, (pair){-g->mean_h.sum, -g->mean_h.error});
        add_pair(&v, (pair){-along.sum, -along.error});
        dx[j] = (real)scale((v.sum + v.error) * g->rstd_fraction, g->rstd_power + g->h_power);
        term[j] = (real)(dy[j] * (xhat.sum + xhat.error));
    }
}

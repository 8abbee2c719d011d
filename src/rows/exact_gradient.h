/* exact_gradient.h: the exact way of backward; see exact.h. */

/* A row the exact way: xhat = ((x · 2^power − center) − rest) · factor, h = h' · 2^h_power,
 * dx = (h' − mean_h − xhat · mean_h_xhat) · rstd_fraction · 2^dx_power */
typedef struct {
    double center, rest, factor, mean_h, mean_h_xhat, rstd_fraction;
    int power, h_power, dx_power;
} exact_row;

/* dy · weight · 2^-power without leaving the range on the way */
ALWAYS double scale_h(double dy, double weight, int power) {
    int a, b;
    double h = split_power(dy, &a) * split_power(weight, &b);
    return scale(h, a + b - power);
}

ALWAYS double scale_xhat(double x, const exact_row *g) {
    return __builtin_fma(scale(x, g->power) - g->center, g->factor, -(g->rest * g->factor));
}

/* The constants of a row for the exact way: xhat scaled through x, h = dy · weight through its own exponents. */
NEVER void scale_gradient(const real *x, const real *dy, const real *weight, ptrdiff_t cols, double mean, double rstd,
                          exact_row *g) {
    int finite;
    const double n = (double)cols;
    g->power = row_power(x, cols, &finite);
    g->center = scale(mean, g->power);
    g->factor = scale(rstd, -g->power);

    /* the largest power of two in h */
    int top = -100000;
    for (ptrdiff_t j = 0; j < cols; ++j) {
        int a, b = 0;
        double h = split_power(dy[j], &a) * (weight ? split_power(weight[j], &b) : 1);
        if (h != 0 && a + b > top) top = a + b;
    }
    g->h_power = top == -100000 ? 0 : top;

    pair rest = {0, 0}, sum_h = {0, 0}, sum_h_xhat = {0, 0};
    for (ptrdiff_t j = 0; j < cols; ++j)
        add_to_pair(&rest, scale(x[j], g->power) - g->center);
    g->rest = (rest.sum + rest.error) / n;
    for (ptrdiff_t j = 0; j < cols; ++j) {
        double xhat = scale_xhat(x[j], g);
        double h = scale_h(dy[j], weight ? weight[j] : 1, g->h_power);
        add_to_pair(&sum_h, h);
        add_to_pair(&sum_h_xhat, h * xhat);
    }
    g->mean_h = (sum_h.sum + sum_h.error) / n;
    g->mean_h_xhat = (sum_h_xhat.sum + sum_h_xhat.error) / n;
    g->rstd_fraction = split_power(rstd, &g->dx_power);
    g->dx_power += g->h_power;
}

/* dx and the term dy · xhat of n columns, in float64 and rounded once */
NEVER void scale_columns(const real *x, const real *dy, const real *weight, int n, const exact_row *g, real *dx, real *term) {
    for (int j = 0; j < n; ++j) {
        double xhat = scale_xhat(x[j], g);
        double h = scale_h(dy[j], weight ? weight[j] : 1, g->h_power);
        double v = ((h - g->mean_h) - xhat * g->mean_h_xhat) * g->rstd_fraction;
        dx[j] = (real)scale(v, g->dx_power);
        term[j] = (real)(dy[j] * xhat);
    }
}

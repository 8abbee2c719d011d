/* across_gradient_f64.h: backward of float64's rows that lie side by side across their columns: each band is turned, near by. */

ALWAYS void backward_band(real *x, const real *dy, const real *weight, const double *mean, const double *rstd, int rows,
                          ptrdiff_t cols, const int centred, double *sums, real *room) {
    differentiate_turned(x, dy, weight, mean, rstd, rows, cols, centred, sums, room);
}

/* across_f64.h: float64's rows that lie side by side across their columns: its sums are too many for the registers that a band's rows take;
 * each band is turned, near by. */

enum { FEW_ROWS = 0 };

ALWAYS void forward_band(real *band, const real *weight, const real *bias, ptrdiff_t cols, int rows, double eps, const int centred,
                         double *mean, double *rstd, real *room) {
    forward_turned(band, weight, bias, cols, rows, eps, centred, mean, rstd, room);
}

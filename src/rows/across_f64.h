/* across_f64.h: float64's rows that lie side by side across their columns: its sums are too many for the registers that a band's rows take;
 * each band is turned, near by. */

enum { FEW_ROWS = 0, NEAR_BYTES = 0 };

/* y, which may be x, and statistics of a band's `rows` rows. room: (BAND, cols) */
ALWAYS void forward_band(const real *x, ptrdiff_t x_pitch, const real *weight, const real *bias, ptrdiff_t cols, int rows,
                         double eps, const int centred, real *y, ptrdiff_t y_pitch, double *mean, double *rstd, real *room) {
    turn_band(x, x_pitch, rows, cols, room);
    (centred ? forward_body : forward_body_rms)(room, weight, bias, 0, rows, cols, eps, LN_NEAR, room, mean, rstd);
    turn_back(room, rows, cols, y, y_pitch);
}

/* across_gradient_f64.h: backward of float64's rows that lie side by side across their columns has no way of its own: they are turned. */

ALWAYS int differentiated_across(const ln_backward_plan *plan, ptrdiff_t first, ptrdiff_t last, const real *weight,
                                 const int centred, real *room, double *sums) {
    (void)plan, (void)first, (void)last, (void)weight, (void)centred, (void)room, (void)sums;
    return 0;
}

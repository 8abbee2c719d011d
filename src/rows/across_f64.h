/* across_f64.h: float64's rows that lie side by side across their columns are turned (views.h), and go through forward.h. */
enum { HAS_ACROSS = 0, ABREAST_ROWS = LN_LINE_BYTES / 8, FEW_ROWS = 0, MOST_ACROSS = 0 };

typedef struct {
    char *p;
    ptrdiff_t stride;
    int dtype, itemsize;
} columns_of_rows;

/* Never called: HAS_ACROSS */
ALWAYS void normalize_across(const columns_of_rows *x, const double *weight, const double *bias, ptrdiff_t cols, int rows,
                             double eps, int far, const int centred, const columns_of_rows *y, double *mean, double *rstd,
                             double *room) {
    (void)x, (void)weight, (void)bias, (void)cols, (void)rows, (void)eps, (void)far, (void)centred, (void)y, (void)mean, (void)rstd;
    (void)room;
}

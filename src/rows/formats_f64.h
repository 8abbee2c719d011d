/* formats_f64.h: what float64 is stored as: itself. */
#define DTYPE_OF_REAL LN_FLOAT64
#define HAS_HALF 0
#define NARROW_REALS 0

/* n elements, `stride` bytes apart at p */
NEVER void read_run(const char *p, ptrdiff_t stride, int dtype, ptrdiff_t n, ptrdiff_t ahead, double *to) {
    (void)dtype, (void)ahead;
    copy_run(p, stride, n, to);
}
NEVER void write_run(const double *from, ptrdiff_t n, int dtype, char *p, ptrdiff_t stride, int streams) {
    (void)dtype, (void)streams;
    spread_run(from, n, p, stride);
}

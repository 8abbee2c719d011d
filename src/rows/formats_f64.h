/* formats_f64.h: what float64 is stored as: itself. */
#define DTYPE_OF_REAL LN_FLOAT64
#define HAS_HALF 0

/* n elements, `stride` bytes apart at p */
NEVER void read_run(const char *p, ptrdiff_t stride, int dtype, ptrdiff_t n, ptrdiff_t ahead, double *to) {
    (void)dtype, (void)ahead;
    copy_run(p, stride, n, to);
}
NEVER void write_run(const double *from, ptrdiff_t n, int dtype, char *p, ptrdiff_t stride, int streams) {
    (void)dtype, (void)streams;
    spread_run(from, n, p, stride);
}

/* A square of TURNED rows and columns: to[j][i] = from[i][j]; pitches in elements */
enum { TURNED = 2 };
typedef double quarter __attribute__((vector_size(16)));
typedef quarter quarter_at __attribute__((aligned(8), may_alias));
ALWAYS void turn_square(const double *from, ptrdiff_t pitch, double *to, ptrdiff_t to_pitch) {
    const quarter a = *(const quarter_at *)from, b = *(const quarter_at *)(from + pitch);
    *(quarter_at *)to = (quarter){a[0], b[0]};
    *(quarter_at *)(to + to_pitch) = (quarter){a[1], b[1]};
}

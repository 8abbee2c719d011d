/* loops.c: the norms as a C programmer writes them, and copies of the same bytes, to measure lnfast
   against. Compiled when a benchmark starts, once for REAL = float and once for double. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__) && !defined(__clang__)
#include <emmintrin.h>
#endif

/* y = (x - mean) * rstd * weight + bias */
void forward(const REAL *x,                                       /* in   (rows, cols) */
             const REAL *weight,                                  /* in   (cols,)      */
             const REAL *bias,                                    /* in   (cols,)      */
             ptrdiff_t rows, ptrdiff_t cols, double eps, REAL *y) /* out  (rows, cols) */
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        const REAL *row = x + i * cols;
        REAL mean = 0;
        for (ptrdiff_t j = 0; j < cols; j++)
            mean += row[j];
        mean /= cols;
        REAL var = 0;
        for (ptrdiff_t j = 0; j < cols; j++)
            var += (row[j] - mean) * (row[j] - mean);
        var /= cols;
        const REAL rstd = 1 / sqrt(var + eps);
        for (ptrdiff_t j = 0; j < cols; j++)
            y[i * cols + j] = (row[j] - mean) * rstd * weight[j] + bias[j];
    }
}

/* dx = rstd * (h - mean(h) - xhat * mean(h * xhat)),   h = dy * weight */
void backward(const REAL *dy,                           /* in   (rows, cols) */
              const REAL *x,                            /* in   (rows, cols) */
              const REAL *weight,                       /* in   (cols,)      */
              const REAL *mean,                         /* in   (rows,)      */
              const REAL *rstd,                         /* in   (rows,)      */
              ptrdiff_t rows, ptrdiff_t cols, REAL *dx, /* out  (rows, cols)               */
              REAL *dweight,                            /* out  (cols,), zeros beforehand  */
              REAL *dbias)                              /* out  (cols,), zeros beforehand  */
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        const REAL *dy_row = dy + i * cols, *x_row = x + i * cols;
        REAL mean_h = 0, mean_h_xhat = 0;
        for (ptrdiff_t j = 0; j < cols; j++) {
            const REAL h = dy_row[j] * weight[j];
            mean_h += h;
            mean_h_xhat += h * ((x_row[j] - mean[i]) * rstd[i]);
        }
        mean_h /= cols;
        mean_h_xhat /= cols;
        for (ptrdiff_t j = 0; j < cols; j++) {
            const REAL xhat = (x_row[j] - mean[i]) * rstd[i];
            dbias[j] += dy_row[j];
            dweight[j] += dy_row[j] * xhat;
            dx[i * cols + j] = rstd[i] * (dy_row[j] * weight[j] - mean_h - xhat * mean_h_xhat);
        }
    }
}

/* y = x * rstd * weight */
void rms_forward(const REAL *x,                                       /* in   (rows, cols) */
                 const REAL *weight,                                  /* in   (cols,)      */
                 ptrdiff_t rows, ptrdiff_t cols, double eps, REAL *y) /* out  (rows, cols) */
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        const REAL *row = x + i * cols;
        REAL mean_square = 0;
        for (ptrdiff_t j = 0; j < cols; j++)
            mean_square += row[j] * row[j];
        mean_square /= cols;
        const REAL rstd = 1 / sqrt(mean_square + eps);
        for (ptrdiff_t j = 0; j < cols; j++)
            y[i * cols + j] = row[j] * rstd * weight[j];
    }
}

/* dx = rstd * (h - xhat * mean(h * xhat)),   h = dy * weight */
void rms_backward(const REAL *dy,                           /* in   (rows, cols) */
                  const REAL *x,                            /* in   (rows, cols) */
                  const REAL *weight,                       /* in   (cols,)      */
                  const REAL *rstd,                         /* in   (rows,)      */
                  ptrdiff_t rows, ptrdiff_t cols, REAL *dx, /* out  (rows, cols)              */
                  REAL *dweight)                            /* out  (cols,), zeros beforehand */
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        const REAL *dy_row = dy + i * cols, *x_row = x + i * cols;
        REAL mean_h_xhat = 0;
        for (ptrdiff_t j = 0; j < cols; j++)
            mean_h_xhat += dy_row[j] * weight[j] * (x_row[j] * rstd[i]);
        mean_h_xhat /= cols;
        for (ptrdiff_t j = 0; j < cols; j++) {
            const REAL xhat = x_row[j] * rstd[i];
            dweight[j] += dy_row[j] * xhat;
            dx[i * cols + j] = rstd[i] * (dy_row[j] * weight[j] - xhat * mean_h_xhat);
        }
    }
}

/* y = x */
void copy(const REAL *restrict x, ptrdiff_t count, int num_threads, REAL *restrict y) {
#pragma omp parallel for num_threads(num_threads) schedule(static)
    for (ptrdiff_t i = 0; i < count; i++)
        y[i] = x[i];
}

/* dx = x + dy */
void add(const REAL *restrict x, const REAL *restrict dy, ptrdiff_t count, int num_threads, REAL *restrict dx) {
#pragma omp parallel for num_threads(num_threads) schedule(static)
    for (ptrdiff_t i = 0; i < count; i++)
        dx[i] = x[i] + dy[i];
}

/* 16 bytes, read from any address of a REAL. */
typedef REAL piece __attribute__((vector_size(16), aligned(sizeof(REAL)), may_alias));
enum { LINE = 64 / sizeof(REAL), PIECE = 16 / sizeof(REAL) };

/* Past the caches, `to` on a multiple of 16 bytes; a plain store where the compiler knows no such. */
static inline void stream(REAL *to, piece value) {
#if defined(__clang__)
    typedef REAL aligned_piece __attribute__((vector_size(16), may_alias));
    __builtin_nontemporal_store((aligned_piece)value, (aligned_piece *)to);
#elif defined(__SSE2__)
    _mm_stream_si128((__m128i *)to, (__m128i)value);
#else
    *(piece *)to = value;
#endif
}

static inline void fence(void) {
#if defined(__SSE2__)
    __builtin_ia32_sfence();
#endif
}

/* Elements before the first cache line that starts in y. */
static inline ptrdiff_t before_line(const REAL *y, ptrdiff_t count) {
    const ptrdiff_t elements = (ptrdiff_t)((64 - (uintptr_t)y % 64) % 64 / sizeof(REAL));
    return elements < count ? elements : count;
}

/* y = x, whole lines of y past the caches */
void copy_streaming(const REAL *x, ptrdiff_t count, int num_threads, REAL *y) {
    const ptrdiff_t start = before_line(y, count), lines = (count - start) / LINE;
#pragma omp parallel num_threads(num_threads)
    {
#pragma omp for schedule(static) nowait
        for (ptrdiff_t line = 0; line < lines; line++) {
            const ptrdiff_t i = start + line * LINE;
            for (int k = 0; k < LINE; k += PIECE)
                stream(y + i + k, *(const piece *)(x + i + k));
        }
        fence();
    }
    for (ptrdiff_t i = 0; i < start; i++)
        y[i] = x[i];
    for (ptrdiff_t i = start + lines * LINE; i < count; i++)
        y[i] = x[i];
}

/* dx = x + dy, whole lines of dx past the caches */
void add_streaming(const REAL *x, const REAL *dy, ptrdiff_t count, int num_threads, REAL *dx) {
    const ptrdiff_t start = before_line(dx, count), lines = (count - start) / LINE;
#pragma omp parallel num_threads(num_threads)
    {
#pragma omp for schedule(static) nowait
        for (ptrdiff_t line = 0; line < lines; line++) {
            const ptrdiff_t i = start + line * LINE;
            for (int k = 0; k < LINE; k += PIECE)
                stream(dx + i + k, *(const piece *)(x + i + k) + *(const piece *)(dy + i + k));
        }
        fence();
    }
    for (ptrdiff_t i = 0; i < start; i++)
        dx[i] = x[i] + dy[i];
    for (ptrdiff_t i = start + lines * LINE; i < count; i++)
        dx[i] = x[i] + dy[i];
}

/* formats_f32.h: what float32 is stored as: itself, float16 or bfloat16. */
#define DTYPE_OF_REAL LN_FLOAT32
#define HAS_HALF 1

#include "half.h"

/* n elements, `stride` bytes apart at p; ahead, if not 0: how many bytes on from them what will be read next is fetched */
NEVER void read_run(const char *p, ptrdiff_t stride, int dtype, ptrdiff_t n, ptrdiff_t ahead, float *to) {
    if (dtype == LN_FLOAT32)
        copy_run(p, stride, n, to);
    else if (dtype == LN_FLOAT16)
        widen_run(p, stride, n, widen_float16, ahead, to);
    else
        widen_run(p, stride, n, widen_bfloat16, ahead, to);
}
/* streams: past the caches, where that can be */
NEVER void write_run(const float *from, ptrdiff_t n, int dtype, char *p, ptrdiff_t stride, int streams) {
    if (dtype == LN_FLOAT32)
        spread_run(from, n, p, stride);
    else if (dtype == LN_FLOAT16)
        narrow_run(from, n, narrow_float16, p, stride, streams);
    else
        narrow_run(from, n, narrow_bfloat16, p, stride, streams);
}

/* A square of TURNED rows and columns: to[j][i] = from[i][j]; pitches in elements */
enum { TURNED = 4 };
typedef float quarter __attribute__((vector_size(16)));
typedef int32_t quarter_places __attribute__((vector_size(16)));
typedef quarter quarter_at __attribute__((aligned(4), may_alias));
#if defined(__clang__)
#define DEAL_QUARTER(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define DEAL_QUARTER(a, b, ...) __builtin_shuffle(a, b, (quarter_places){__VA_ARGS__})
#endif
ALWAYS void turn_square(const float *from, ptrdiff_t pitch, float *to, ptrdiff_t to_pitch) {
    quarter v[4];
    EACH(k, 4) v[k] = *(const quarter_at *)(from + k * pitch);
    const quarter low = DEAL_QUARTER(v[0], v[1], 0, 4, 1, 5), high = DEAL_QUARTER(v[0], v[1], 2, 6, 3, 7);
    const quarter low_2 = DEAL_QUARTER(v[2], v[3], 0, 4, 1, 5), high_2 = DEAL_QUARTER(v[2], v[3], 2, 6, 3, 7);
    *(quarter_at *)to = DEAL_QUARTER(low, low_2, 0, 1, 4, 5);
    *(quarter_at *)(to + to_pitch) = DEAL_QUARTER(low, low_2, 2, 3, 6, 7);
    *(quarter_at *)(to + 2 * to_pitch) = DEAL_QUARTER(high, high_2, 0, 1, 4, 5);
    *(quarter_at *)(to + 3 * to_pitch) = DEAL_QUARTER(high, high_2, 2, 3, 6, 7);
}
#undef DEAL_QUARTER

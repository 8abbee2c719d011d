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

/* formats_f32.h: what float32 is stored as: itself, float16 or bfloat16. */
#define DTYPE_OF_REAL LN_FLOAT32
#define HAS_HALF 1
#define NARROW_REALS narrow_reals

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
/* Sixteen elements at p, of which n are there, in float64; 0 for the others */
ALWAYS void read_sixteen(const void *p, int n, const int format, vd to[2 * REGS]) {
    uint16_t part[16] = {0};
    if (format != LN_FLOAT32 && n < 16) {
        for (int k = 0; k < n; ++k)
            part[k] = ((const uint16_t *)p)[k];
        p = part;
    }
    EACH(k, 2) {
        const uint16_t *half = (const uint16_t *)p + 8 * k;
        if (format == LN_FLOAT16) widen_eight_float16(half, to + k * REGS);
        if (format == LN_BFLOAT16) widen_eight_bfloat16(half, to + k * REGS);
    }
    if (format == LN_FLOAT32) EACH(i, 2 * REGS) {
            const int left = n - i * WD;
            to[i] = left > 0 ? load_n_wide((const float *)p + i * WD, left < WD ? left : WD) : (vd){0};
        }
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
static void narrow_reals(const void *from, ptrdiff_t n, int dtype, void *to) {
    const fp_mode mode = fp_enter();
    write_run(from, n, dtype, to, 2, 0);
    fp_leave(mode);
}

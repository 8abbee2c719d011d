/* vector.h: the vector vocabulary. Knows registers. Does not know layer norm. Intrinsics stand here, in wide.h and multiply_add.h, and in
 * half.h, masks.h and turn.h what these need besides.
 *
 * vf: LN_BYTES of float32 (WF lanes); vd (wide.h): WIDE_BYTES of float64 (WD lanes). + − · / are the compiler's, lane by lane,
 * IEEE, never contracted. Every operation gives the same bits at every width. */
#define ALWAYS static inline __attribute__((always_inline))
#define NEVER static __attribute__((noinline))
/* What takes many instructions for lack of the right one, and is needed in many places, few of which count: inlined, it made the baseline's
 * build twice as long. Not every dtype needs it. */
#define APART static __attribute__((noinline, unused))

/* A loop whose trip count the compiler knows, written out in full. */
#if defined(__clang__)
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)
#else
#define EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); ++i)
#endif

/* Two registers' lanes dealt anew: a's count from 0, then b's. places: a vector of as many integers */
#if defined(__clang__)
#define DEAL_OF(places, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define DEAL_OF(places, a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

#define WF (LN_BYTES / 4)
typedef float vf __attribute__((vector_size(LN_BYTES)));
typedef int32_t vi __attribute__((vector_size(LN_BYTES)));
typedef vf vf_at __attribute__((aligned(4), may_alias));

ALWAYS vf load_f(const float *p) { return *(const vf_at *)p; }
ALWAYS void store_f(float *p, vf v) { *(vf_at *)p = v; }
/* s − 0 is s for every s, −0 too, so that the compiler drops the subtraction. */
ALWAYS vf splat_f(float s) { return s - (vf){0}; }
ALWAYS vf magnitude_f(vf v) { return (vf)((vi)v & INT32_MAX); }

/* a · b + c, rounded twice: not contracted (float64's, in multiply_add.h, rounds once) */
ALWAYS vf multiply_add_f(vf a, vf b, vf c) { return a * b + c; }

/* Into the second-level cache */
ALWAYS void fetch(const void *p) { __builtin_prefetch(p, 0, 2); }

/* load_part, store_part: the first n of the lanes (0 ≤ n ≤ lanes); nothing else is read or written, the others are 0.
 * stream: a store that goes past the caches; p aligned to the register. */
#if LN_BYTES == 64

ALWAYS vf load_part_f(const float *p, int n) { return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
ALWAYS void store_part_f(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v); }
ALWAYS void stream_f(float *p, vf v) { _mm512_stream_ps(p, (__m512)v); }

#elif LN_BYTES == 32

/* a window on this, n before its middle, is a mask of n lanes */
static const int32_t mask_f[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
#define MASK_F(n) _mm256_loadu_si256((const __m256i *)(mask_f + 8 - (n)))
ALWAYS vf load_part_f(const float *p, int n) { return (vf)_mm256_maskload_ps(p, MASK_F(n)); }
ALWAYS void store_part_f(float *p, vf v, int n) { _mm256_maskstore_ps(p, MASK_F(n), (__m256)v); }
ALWAYS void stream_f(float *p, vf v) { _mm256_stream_ps(p, (__m256)v); }

#else

APART vf load_part_f(const float *p, int n) {
    float part[WF] = {0};
    EACH(i, WF) if (i < n) part[i] = p[i];
    return load_f(part);
}
APART void store_part_f(float *p, vf v, int n) {
    float part[WF];
    store_f(part, v);
    EACH(i, WF) if (i < n) p[i] = part[i];
}
#if defined(__SSE2__)
ALWAYS void stream_f(float *p, vf v) { _mm_stream_ps(p, (__m128)v); }
#else
ALWAYS void stream_f(float *p, vf v) { store_f(p, v); }
#endif

#endif

/* The first n of the lanes; n = WF: all, by the plain instruction where the compiler knows it */
ALWAYS vf load_n_f(const float *p, int n) { return n == WF ? load_f(p) : load_part_f(p, n); }
ALWAYS void store_n_f(float *p, vf v, int n) {
    if (n == WF)
        store_f(p, v);
    else
        store_part_f(p, v, n);
}

/* 16 bytes past the caches; p aligned to 16 bytes */
ALWAYS void stream_piece(void *p, const void *from) {
#if defined(__SSE2__)
    _mm_stream_ps(p, _mm_loadu_ps(from));
#else
    memcpy(p, from, 16);
#endif
}

/* Orders streamed stores before whatever the thread publishes next. */
ALWAYS void stream_end(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* vector.h: the vector vocabulary, and the only file with intrinsics. Knows registers. Does not know layer norm.
 *
 * vf: LN_BYTES of float32 (WF lanes), vd: LN_BYTES of float64 (WD lanes). + − · / are the compiler's, lane by lane, IEEE, never
 * contracted. Every operation here gives the same bits at every LN_BYTES. */
#define ALWAYS static inline __attribute__((always_inline))
#define NEVER static __attribute__((noinline))

#define WF (LN_BYTES / 4)
#define WD (LN_BYTES / 8)

typedef float vf __attribute__((vector_size(LN_BYTES)));
typedef double vd __attribute__((vector_size(LN_BYTES)));
typedef float vh __attribute__((vector_size(LN_BYTES / 2))); /* the float32 values of one vd */
typedef int64_t vm __attribute__((vector_size(LN_BYTES)));   /* a lane mask of vd: 0 or −1 */

typedef vf vf_at __attribute__((aligned(4), may_alias));
typedef vd vd_at __attribute__((aligned(8), may_alias));
typedef vh vh_at __attribute__((aligned(4), may_alias));

/* A loop whose trip count the compiler knows, written out in full. */
#if defined(__clang__)
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)
#else
#define EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); ++i)
#endif

ALWAYS vf load_f(const float *p) { return *(const vf_at *)p; }
ALWAYS vd load_d(const double *p) { return *(const vd_at *)p; }
ALWAYS void store_f(float *p, vf v) { *(vf_at *)p = v; }
ALWAYS void store_d(double *p, vd v) { *(vd_at *)p = v; }

/* s − 0 is s for every s, −0 too, so that the compiler drops the subtraction. */
ALWAYS vf splat_f(float s) { return s - (vf){0}; }
ALWAYS vd splat_d(double s) { return s - (vd){0}; }

ALWAYS vd widen(vh v) {
#if LN_BYTES == 64
    return (vd)_mm512_cvtps_pd((__m256)v);
#elif LN_BYTES == 32
    return (vd)_mm256_cvtps_pd((__m128)v);
#else
    return __builtin_convertvector(v, vd);
#endif
}
/* v's float32 lanes as two registers of float64, in order */
ALWAYS void widen_halves(vf v, vd half[2]) {
#if LN_BYTES == 64
    half[0] = (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
    half[1] = (vd)_mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)v, 1)));
#elif LN_BYTES == 32
    half[0] = (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v));
    half[1] = (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
#elif defined(__SSE2__)
    half[0] = (vd)_mm_cvtps_pd((__m128)v);
    half[1] = (vd)_mm_cvtps_pd(_mm_movehl_ps((__m128)v, (__m128)v));
#else
    EACH(i, WD) {
        half[0][i] = v[i];
        half[1][i] = v[i + WD];
    }
#endif
}

/* The first n of the lanes (0 ≤ n ≤ lanes); nothing else is read or written, the others are 0. */
#if LN_BYTES == 64
ALWAYS vf load_part_f(const float *p, int n) { return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
ALWAYS vh load_part_h(const float *p, int n) {
    return (vh)_mm512_castps512_ps256(_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p));
}
ALWAYS vd load_part_d(const double *p, int n) { return (vd)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p); }
ALWAYS void store_part_f(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v); }
ALWAYS void store_part_d(double *p, vd v, int n) { _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v); }
#elif LN_BYTES == 32
/* a window on this, n before its middle, is a mask of n lanes */
static const int32_t mask_f[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
static const int64_t mask_d[8] = {-1, -1, -1, -1};
#define MASK_F(n) _mm256_loadu_si256((const __m256i *)(mask_f + 8 - (n)))
#define MASK_H(n) _mm_loadu_si128((const __m128i *)(mask_f + 8 - (n)))
#define MASK_D(n) _mm256_loadu_si256((const __m256i *)(mask_d + 4 - (n)))
ALWAYS vf load_part_f(const float *p, int n) { return (vf)_mm256_maskload_ps(p, MASK_F(n)); }
ALWAYS vh load_part_h(const float *p, int n) { return (vh)_mm_maskload_ps(p, MASK_H(n)); }
ALWAYS vd load_part_d(const double *p, int n) { return (vd)_mm256_maskload_pd(p, MASK_D(n)); }
ALWAYS void store_part_f(float *p, vf v, int n) { _mm256_maskstore_ps(p, MASK_F(n), (__m256)v); }
ALWAYS void store_part_d(double *p, vd v, int n) { _mm256_maskstore_pd(p, MASK_D(n), (__m256d)v); }
#else
ALWAYS vf load_part_f(const float *p, int n) {
    float part[WF] = {0};
    EACH(i, WF) if (i < n) part[i] = p[i];
    return load_f(part);
}
ALWAYS vh load_part_h(const float *p, int n) {
    float part[WD] = {0};
    EACH(i, WD) if (i < n) part[i] = p[i];
    return *(const vh_at *)part;
}
ALWAYS vd load_part_d(const double *p, int n) {
    double part[WD] = {0};
    EACH(i, WD) if (i < n) part[i] = p[i];
    return load_d(part);
}
ALWAYS void store_part_f(float *p, vf v, int n) {
    float part[WF];
    store_f(part, v);
    EACH(i, WF) if (i < n) p[i] = part[i];
}
ALWAYS void store_part_d(double *p, vd v, int n) {
    double part[WD];
    store_d(part, v);
    EACH(i, WD) if (i < n) p[i] = part[i];
}
#endif

ALWAYS vh load_h(const float *p) { return *(const vh_at *)p; }
ALWAYS vd load_wide(const float *p) { return widen(load_h(p)); }
ALWAYS vd load_part_wide(const float *p, int n) { return widen(load_part_h(p, n)); }

/* Whether a comparison's mask is set in any lane, for both lane widths */
#define any_lane(mask) any_bits((vm)(mask))
ALWAYS int any_bits(vm v) {
    int64_t any = 0;
    EACH(i, WD) any |= v[i];
    return any != 0;
}

/* v with its lanes from n on set to 0 */
ALWAYS vd keep_part(vd v, int n) {
    vm lane;
    EACH(i, WD) lane[i] = i;
    return (vd)((vm)v & (lane < (vm){0} + n));
}

/* √v, correctly rounded */
ALWAYS vd root(vd v) {
#if LN_BYTES == 64
    return (vd)_mm512_sqrt_pd((__m512d)v);
#elif LN_BYTES == 32
    return (vd)_mm256_sqrt_pd((__m256d)v);
#elif defined(__SSE2__)
    return (vd)_mm_sqrt_pd((__m128d)v);
#elif defined(__aarch64__)
    return (vd)vsqrtq_f64((float64x2_t)v);
#else
    EACH(i, WD) v[i] = __builtin_sqrt(v[i]);
    return v;
#endif
}

/* a · b + c where a · b is exact in float64: fused or not, the same bits */
ALWAYS vd add_exact_product(vd a, vd b, vd c) {
#if LN_BYTES == 64
    return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif LN_BYTES == 32
    return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
}

/* e with a · b = p + e exactly, for p = a · b rounded (Dekker 1971 where there is no fused operation); no factor
 * above 2^990, no product below 2^-900 */
ALWAYS vd product_error(vd a, vd b, vd p) {
#if LN_BYTES == 64
    return (vd)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)p);
#elif LN_BYTES == 32
    return (vd)_mm256_fmsub_pd((__m256d)a, (__m256d)b, (__m256d)p);
#else
    const double split = 134217729.0; /* 2^27 + 1 */
    vd ca = a * split, cb = b * split;
    vd ah = ca - (ca - a), bh = cb - (cb - b);
    vd al = a - ah, bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}

/* Σ of the lanes of eight consecutive float64 lanes held in 8 / WD registers: lane i + lane i + 4, then + 2, then + 1 */
ALWAYS double sum_eight(const vd *v) {
    double part[8];
    EACH(i, 8 / WD) store_d(part + i * WD, v[i]);
    double a = part[0] + part[4], b = part[1] + part[5];
    double c = part[2] + part[6], d = part[3] + part[7];
    return (a + c) + (b + d);
}

/* A store that goes past the caches; p aligned to LN_BYTES. */
ALWAYS void stream_f(float *p, vf v) {
#if LN_BYTES == 64
    _mm512_stream_ps(p, (__m512)v);
#elif LN_BYTES == 32
    _mm256_stream_ps(p, (__m256)v);
#elif defined(__SSE2__)
    _mm_stream_ps(p, (__m128)v);
#else
    store_f(p, v);
#endif
}
ALWAYS void stream_d(double *p, vd v) {
#if LN_BYTES == 64
    _mm512_stream_pd(p, (__m512d)v);
#elif LN_BYTES == 32
    _mm256_stream_pd(p, (__m256d)v);
#elif defined(__SSE2__)
    _mm_stream_pd(p, (__m128d)v);
#else
    store_d(p, v);
#endif
}
/* Orders streamed stores before whatever the thread publishes next. */
ALWAYS void stream_end(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* The floating-point mode: round to nearest, no flush to zero, no traps. */
#if defined(__SSE2__)
typedef unsigned int fp_mode;
ALWAYS fp_mode fp_enter(void) {
    fp_mode mode = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return mode;
}
ALWAYS void fp_leave(fp_mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
typedef uint64_t fp_mode;
ALWAYS fp_mode fp_enter(void) {
    fp_mode mode, plain = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(plain) : "memory");
    return mode;
}
ALWAYS void fp_leave(fp_mode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#else
typedef int fp_mode;
ALWAYS fp_mode fp_enter(void) { return 0; }
ALWAYS void fp_leave(fp_mode mode) { (void)mode; }
#endif

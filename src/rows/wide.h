/* wide.h: the vector vocabulary of float64: vd, WIDE_BYTES of it (WD lanes), vh, the float32 values of one vd, and vm, a mask of
 * its lanes (0 or −1). See vector.h. */
#define WD (WIDE_BYTES / 8)
typedef double vd __attribute__((vector_size(WIDE_BYTES)));
typedef float vh __attribute__((vector_size(WIDE_BYTES / 2)));
typedef int64_t vm __attribute__((vector_size(WIDE_BYTES)));
typedef vd vd_at __attribute__((aligned(8), may_alias));
typedef vm vm_at __attribute__((aligned(8), may_alias));
typedef vh vh_at __attribute__((aligned(4), may_alias));

ALWAYS vd load_d(const double *p) { return *(const vd_at *)p; }
ALWAYS vh load_h(const float *p) { return *(const vh_at *)p; }
ALWAYS void store_d(double *p, vd v) { *(vd_at *)p = v; }
ALWAYS vm load_m(const int64_t *p) { return *(const vm_at *)p; }
ALWAYS void store_m(int64_t *p, vm v) { *(vm_at *)p = v; }
ALWAYS void store_h(float *p, vh v) { *(vh_at *)p = v; }
ALWAYS vd splat_d(double s) { return s - (vd){0}; }
ALWAYS vd magnitude(vd v) { return (vd)((vm)v & INT64_MAX); }

/* a where the mask is set, b elsewhere */
ALWAYS vd pick(vm mask, vd a, vd b) { return (vd)(((vm)a & mask) | ((vm)b & ~mask)); }

/* v with its lanes from n on set to 0 */
ALWAYS vd keep_part(vd v, int n) {
    vm lane;
    EACH(i, WD) lane[i] = i;
    return (vd)((vm)v & (lane < (vm){0} + n));
}

/* widen, narrow: float32 to float64 and back, to nearest.   root: √v, correctly rounded.
 * add_exact_product: a · b + c where a · b is exact in float64: fused or not, the same bits.
 * product_error: e with a · b = p + e exactly, for p = a · b rounded (Dekker 1971 where there is no fused operation); no factor
 *     above 2^990, no product below 2^-900.
 * any_of: whether a mask is set anywhere.
 * plus, minus: a + b, a − b on the multiplying ports, which sums leave idle while the adding ones are full: the same bits. */
#if WIDE_BYTES == 64

#define MASK_D(n) ((__mmask8)((1u << (n)) - 1))
ALWAYS vd load_part_d(const double *p, int n) { return (vd)_mm512_maskz_loadu_pd(MASK_D(n), p); }
ALWAYS void store_part_d(double *p, vd v, int n) { _mm512_mask_storeu_pd(p, MASK_D(n), (__m512d)v); }
ALWAYS int any_of(vm mask) { return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0; }
ALWAYS vh load_part_h(const float *p, int n) {
    return (vh)_mm512_castps512_ps256(_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p));
}
ALWAYS void stream_d(double *p, vd v) { _mm512_stream_pd(p, (__m512d)v); }
ALWAYS vd widen(vh v) { return (vd)_mm512_cvtps_pd((__m256)v); }
ALWAYS vh narrow(vd v) { return (vh)_mm512_cvtpd_ps((__m512d)v); }
ALWAYS vd root(vd v) { return (vd)_mm512_sqrt_pd((__m512d)v); }
ALWAYS vd add_exact_product(vd a, vd b, vd c) { return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
ALWAYS vd product_error(vd a, vd b, vd p) { return (vd)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)p); }
ALWAYS vd plus_d(vd a, vd b) { return add_exact_product(a, (vd)_mm512_set1_pd(1), b); }
ALWAYS vd minus_d(vd a, vd b) { return product_error(a, (vd)_mm512_set1_pd(1), b); }

#elif WIDE_BYTES == 32

/* a window on these, n before their middle, is a mask of n lanes */
static const int64_t mask_d[8] = {-1, -1, -1, -1};
static const int32_t mask_h[8] = {-1, -1, -1, -1};
#define MASK_D(n) _mm256_loadu_si256((const __m256i *)(mask_d + 4 - (n)))
ALWAYS vd load_part_d(const double *p, int n) { return (vd)_mm256_maskload_pd(p, MASK_D(n)); }
ALWAYS void store_part_d(double *p, vd v, int n) { _mm256_maskstore_pd(p, MASK_D(n), (__m256d)v); }
ALWAYS int any_of(vm mask) { return _mm256_movemask_pd((__m256d)mask) != 0; }
ALWAYS vh load_part_h(const float *p, int n) { return (vh)_mm_maskload_ps(p, _mm_loadu_si128((const __m128i *)(mask_h + 4 - n))); }
ALWAYS void stream_d(double *p, vd v) { _mm256_stream_pd(p, (__m256d)v); }
ALWAYS vd widen(vh v) { return (vd)_mm256_cvtps_pd((__m128)v); }
ALWAYS vh narrow(vd v) { return (vh)_mm256_cvtpd_ps((__m256d)v); }
ALWAYS vd root(vd v) { return (vd)_mm256_sqrt_pd((__m256d)v); }
ALWAYS vd add_exact_product(vd a, vd b, vd c) { return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
ALWAYS vd product_error(vd a, vd b, vd p) { return (vd)_mm256_fmsub_pd((__m256d)a, (__m256d)b, (__m256d)p); }
ALWAYS vd plus_d(vd a, vd b) { return add_exact_product(a, (vd)_mm256_set1_pd(1), b); }
ALWAYS vd minus_d(vd a, vd b) { return product_error(a, (vd)_mm256_set1_pd(1), b); }

#else

APART vd load_part_d(const double *p, int n) {
    double part[WD] = {0};
    EACH(i, WD) if (i < n) part[i] = p[i];
    return load_d(part);
}
APART void store_part_d(double *p, vd v, int n) { EACH(i, WD) if (i < n) p[i] = v[i]; }
ALWAYS int any_of(vm mask) {
    int64_t any = 0;
    EACH(i, WD) any |= mask[i];
    return any != 0;
}
APART vh load_part_h(const float *p, int n) {
    float part[WD] = {0};
    EACH(i, WD) if (i < n) part[i] = p[i];
    return load_h(part);
}
ALWAYS vd widen(vh v) { return __builtin_convertvector(v, vd); }
ALWAYS vh narrow(vd v) { return __builtin_convertvector(v, vh); }
ALWAYS vd root(vd v) {
#if defined(__SSE2__)
    return (vd)_mm_sqrt_pd((__m128d)v);
#elif defined(__aarch64__)
    return (vd)vsqrtq_f64((float64x2_t)v);
#else
    EACH(i, WD) v[i] = __builtin_sqrt(v[i]);
    return v;
#endif
}
ALWAYS void stream_d(double *p, vd v) {
#if defined(__SSE2__)
    _mm_stream_pd(p, (__m128d)v);
#else
    store_d(p, v);
#endif
}
ALWAYS vd add_exact_product(vd a, vd b, vd c) { return a * b + c; }
ALWAYS vd product_error(vd a, vd b, vd p) {
    const double split = 134217729.0; /* 2^27 + 1 */
    const vd ca = a * split, cb = b * split;
    const vd ah = ca - (ca - a), bh = cb - (cb - b);
    const vd al = a - ah, bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
}
ALWAYS vd plus_d(vd a, vd b) { return a + b; }
ALWAYS vd minus_d(vd a, vd b) { return a - b; }

#endif

/* The first n of the lanes; n = WD: all, by the plain instruction where the compiler knows it */
ALWAYS vd load_n_d(const double *p, int n) { return n == WD ? load_d(p) : load_part_d(p, n); }
ALWAYS void store_n_d(double *p, vd v, int n) {
    if (n == WD)
        store_d(p, v);
    else
        store_part_d(p, v, n);
}

ALWAYS vd load_wide(const float *p) { return widen(load_h(p)); }
ALWAYS vd load_part_wide(const float *p, int n) { return widen(load_part_h(p, n)); }
ALWAYS vd load_n_wide(const float *p, int n) { return n == WD ? load_wide(p) : load_part_wide(p, n); }
ALWAYS void store_n_wide(float *p, vd v, int n) {
    const vh narrowed = narrow(v);
    if (n == WD)
        store_h(p, narrowed);
    else
        EACH(i, WD) if (i < n) p[i] = narrowed[i];
}

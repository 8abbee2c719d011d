/* emulated_avx512.h: the AVX-512 intrinsics of src/rows on registers of 64 bytes that the compiler makes of others, for processors that have
 * none: whether the code for it is right, not how fast. Included after src/rows/target_avx512.h, whose target then is AVX2 alone:
 * tests/emulate_avx512 makes such a copy of the sources. */
#pragma once

typedef float ef __attribute__((vector_size(64)));
typedef double ed __attribute__((vector_size(64)));
typedef int32_t ei __attribute__((vector_size(64)));
typedef uint32_t eu __attribute__((vector_size(64)));
typedef float half_ef __attribute__((vector_size(32)));
#define EMULATED static inline __attribute__((always_inline, unused))
#define LANES_OF(i, n) for (int i = 0; i < (n); ++i)

/* Loads and stores: of the lanes whose bit is set alone */
EMULATED ef e_maskz_loadu_ps(unsigned mask, const void *p) {
    ef v = {0};
    LANES_OF(i, 16) if (mask >> i & 1) memcpy((char *)&v + 4 * i, (const char *)p + 4 * i, 4);
    return v;
}
EMULATED ed e_maskz_loadu_pd(unsigned mask, const void *p) {
    ed v = {0};
    LANES_OF(i, 8) if (mask >> i & 1) memcpy((char *)&v + 8 * i, (const char *)p + 8 * i, 8);
    return v;
}
EMULATED void e_mask_storeu_ps(void *p, unsigned mask, ef v) {
    LANES_OF(i, 16) if (mask >> i & 1) memcpy((char *)p + 4 * i, (char *)&v + 4 * i, 4);
}
EMULATED void e_mask_storeu_pd(void *p, unsigned mask, ed v) {
    LANES_OF(i, 8) if (mask >> i & 1) memcpy((char *)p + 8 * i, (char *)&v + 8 * i, 8);
}
/* As the processor's, which fault where p is not aligned */
EMULATED void e_stream(void *p, const void *v) {
    if ((uintptr_t)p % 64) __builtin_trap();
    memcpy(p, v, 64);
}
EMULATED void e_stream_ps(void *p, ef v) { e_stream(p, &v); }
EMULATED void e_stream_pd(void *p, ed v) { e_stream(p, &v); }

EMULATED ei e_set1_epi32(int v) { return (ei){0} + v; }
EMULATED ed e_set1_pd(double v) { return v - (ed){0}; }
EMULATED ei e_add_epi32(ei a, ei b) { return (ei)((eu)a + (eu)b); }
EMULATED ei e_srli_epi32(ei a, int n) { return (ei)((eu)a >> n); }
EMULATED ei e_slli_epi32(ei a, int n) { return (ei)((eu)a << n); }
EMULATED ei e_mask_and_epi32(ei other, unsigned mask, ei a, ei b) {
    LANES_OF(i, 16) other[i] = mask >> i & 1 ? a[i] & b[i] : other[i];
    return other;
}
EMULATED ei e_mask_or_epi32(ei other, unsigned mask, ei a, ei b) {
    LANES_OF(i, 16) other[i] = mask >> i & 1 ? a[i] | b[i] : other[i];
    return other;
}
EMULATED unsigned e_test_epi32_mask(ei a, ei b) {
    unsigned mask = 0;
    LANES_OF(i, 16) mask |= (unsigned)((a[i] & b[i]) != 0) << i;
    return mask;
}
EMULATED unsigned e_testn_epi32_mask(ei a, ei b) { return ~e_test_epi32_mask(a, b) & 0xffff; }
EMULATED unsigned e_test_epi64_mask(ei a, ei b) {
    const unsigned halves = e_test_epi32_mask(a, b);
    unsigned mask = 0;
    LANES_OF(i, 8) mask |= (unsigned)((halves >> 2 * i & 3) != 0) << i;
    return mask;
}
/* of _CMP_UNORD_Q alone */
EMULATED unsigned e_cmp_ps_mask(ef a, ef b, int how) {
    unsigned mask = 0;
    if (how != _CMP_UNORD_Q) __builtin_trap();
    LANES_OF(i, 16) mask |= (unsigned)(a[i] != a[i] || b[i] != b[i]) << i;
    return mask;
}

EMULATED ei e_cvtepu16_epi32(__m256i v) {
    uint16_t low[16];
    ei out;
    _mm256_storeu_si256((void *)low, v);
    LANES_OF(i, 16) out[i] = low[i];
    return out;
}
EMULATED __m256i e_cvtepi32_epi16(ei v) {
    uint16_t low[16];
    LANES_OF(i, 16) low[i] = (uint16_t)v[i];
    return _mm256_loadu_si256((void *)low);
}
EMULATED ei e_cvtepu8_epi32(__m128i v) {
    uint8_t bytes[16];
    ei wide;
    memcpy(bytes, &v, 16);
    LANES_OF(i, 16) wide[i] = bytes[i];
    return wide;
}
EMULATED half_ef e_cvtpd_ps(ed v) { return __builtin_convertvector(v, half_ef); }
EMULATED ed e_cvtps_pd(__m256 v) { return __builtin_convertvector((half_ef)v, ed); }
EMULATED ef e_cvtph_ps(__m256i v) {
    const __m256 half[2] = {_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))};
    ef wide;
    memcpy(&wide, half, 64);
    return wide;
}
EMULATED __m256i e_cvtps_ph(ef v, int how) {
    __m256 half[2];
    if (how != _MM_FROUND_TO_NEAREST_INT) __builtin_trap();
    memcpy(half, &v, 64);
    return _mm256_set_m128i(_mm256_cvtps_ph(half[1], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(half[0], _MM_FROUND_TO_NEAREST_INT));
}
EMULATED __m256 e_castps512_ps256(ef v) {
    __m256 low;
    memcpy(&low, &v, 32);
    return low;
}

EMULATED ed e_fmadd_pd(ed a, ed b, ed c) {
    LANES_OF(i, 8) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
}
EMULATED ed e_fmsub_pd(ed a, ed b, ed c) { return e_fmadd_pd(a, b, -c); }
EMULATED ed e_sqrt_pd(ed v) {
    LANES_OF(i, 8) v[i] = __builtin_sqrt(v[i]);
    return v;
}

/* The lanes whose bit is set to the front, and from there; the others 0 */
#define MOVE(name, type, n)                                                                                                        \
    EMULATED type e_maskz_compress_##name(unsigned mask, type v) {                                                                 \
        type out = {0};                                                                                                            \
        int k = 0;                                                                                                                 \
        LANES_OF(i, n) if (mask >> i & 1) out[k++] = v[i];                                                                         \
        return out;                                                                                                                \
    }                                                                                                                              \
    EMULATED type e_maskz_expand_##name(unsigned mask, type v) {                                                                   \
        type out = {0};                                                                                                            \
        int k = 0;                                                                                                                 \
        LANES_OF(i, n) if (mask >> i & 1) out[i] = v[k++];                                                                         \
        return out;                                                                                                                \
    }
MOVE(ps, ef, 16)
MOVE(pd, ed, 8)
#undef MOVE

#define __m512 ef
#define __m512d ed
#define __m512i ei
#define _mm512_add_epi32 e_add_epi32
#define _mm512_castps512_ps256 e_castps512_ps256
#define _mm512_cmp_ps_mask e_cmp_ps_mask
#define _mm512_cvtepi32_epi16 e_cvtepi32_epi16
#define _mm512_cvtepu16_epi32 e_cvtepu16_epi32
#define _mm512_cvtepu8_epi32 e_cvtepu8_epi32
#define _mm512_cvtpd_ps e_cvtpd_ps
#define _mm512_cvtph_ps e_cvtph_ps
#define _mm512_cvtps_pd e_cvtps_pd
#define _mm512_cvtps_ph e_cvtps_ph
#define _mm512_fmadd_pd e_fmadd_pd
#define _mm512_fmsub_pd e_fmsub_pd
#define _mm512_mask_and_epi32 e_mask_and_epi32
#define _mm512_mask_or_epi32 e_mask_or_epi32
#define _mm512_mask_storeu_pd e_mask_storeu_pd
#define _mm512_mask_storeu_ps e_mask_storeu_ps
#define _mm512_maskz_compress_pd e_maskz_compress_pd
#define _mm512_maskz_compress_ps e_maskz_compress_ps
#define _mm512_maskz_expand_pd e_maskz_expand_pd
#define _mm512_maskz_expand_ps e_maskz_expand_ps
#define _mm512_maskz_loadu_pd e_maskz_loadu_pd
#define _mm512_maskz_loadu_ps e_maskz_loadu_ps
#define _mm512_set1_epi32 e_set1_epi32
#define _mm512_set1_pd e_set1_pd
#define _mm512_slli_epi32 e_slli_epi32
#define _mm512_sqrt_pd e_sqrt_pd
#define _mm512_srli_epi32 e_srli_epi32
#define _mm512_stream_pd e_stream_pd
#define _mm512_stream_ps e_stream_ps
#define _mm512_test_epi32_mask e_test_epi32_mask
#define _mm512_test_epi64_mask e_test_epi64_mask
#define _mm512_testn_epi32_mask e_testn_epi32_mask

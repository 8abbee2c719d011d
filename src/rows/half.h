/* half.h: float16 and bfloat16 to float32 and back, to nearest even: the same bits by the processor's instructions and without. Knows bits. */

typedef uint16_t vs __attribute__((vector_size(LN_BYTES / 2)));
typedef uint32_t vu __attribute__((vector_size(LN_BYTES)));

/* a where the mask is set, b elsewhere */
ALWAYS vu pick_u(vi mask, vu a, vu b) { return (a & (vu)mask) | (b & ~(vu)mask); }

/* A bfloat16 is the upper half of a float32. A NaN keeps its sign and stays one. */
#if LN_BYTES == 64
ALWAYS vf widen_bfloat16(vs v) { return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)v), 16); }
#elif LN_BYTES == 32 /* what the compiler makes of a conversion takes five times as many instructions */
ALWAYS vf widen_bfloat16(vs v) { return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)v), 16); }
#else
ALWAYS vf widen_bfloat16(vs v) { return (vf)(__builtin_convertvector(v, vu) << 16); }
#endif
#if LN_BYTES == 64
/* Half of the last place added, and where what falls off is then 0, the last place made even */
ALWAYS vs narrow_bfloat16(vf v) {
    const __m512i bits = (__m512i)v, up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
    const __mmask16 tie = _mm512_testn_epi32_mask(up, _mm512_set1_epi32(0xffff));
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    __m512i out = _mm512_mask_and_epi32(up, tie, up, _mm512_set1_epi32(~0x10000));
    out = _mm512_mask_or_epi32(out, nan, bits, _mm512_set1_epi32(0x400000));
    return (vs)_mm512_cvtepi32_epi16(_mm512_srli_epi32(out, 16));
}
#elif LN_BYTES == 32
ALWAYS vs narrow_bfloat16(vf v) {
    const __m256i bits = (__m256i)v, odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256 quiet = (__m256)_mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 out = _mm256_blendv_ps((__m256)rounded, quiet, _mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32((__m256i)out, 16);
    return (vs)_mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
/* Two registers that hold no NaN at once, in half the instructions: words apart, the upper ones up by one where the lower is above the
 * middle, or is it and the upper one odd. */
#define NARROWS_TWO 1
ALWAYS int are_numbers(const vf *v, const int count) {
    __m256 nan = _mm256_cmp_ps((__m256)v[0], (__m256)v[1], _CMP_UNORD_Q);
    for (int k = 2; k < count; k += 2)
        nan = _mm256_or_ps(nan, _mm256_cmp_ps((__m256)v[k], (__m256)v[k + 1], _CMP_UNORD_Q));
    return __builtin_expect(_mm256_movemask_ps(nan) == 0, 1);
}
ALWAYS void narrow_two(const vf v[2], vs to[2]) {
    const __m128i even_odd = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i apart = _mm256_broadcastsi128_si256(even_odd);
    const __m256i a = _mm256_shuffle_epi8((__m256i)v[0], apart), b = _mm256_shuffle_epi8((__m256i)v[1], apart);
    const __m256i low = _mm256_unpacklo_epi64(a, b), high = _mm256_unpackhi_epi64(a, b);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi16(1)),
                  middle = _mm256_sub_epi16(_mm256_set1_epi16((short)0x8001), odd);
    const __m256i up = _mm256_cmpeq_epi16(_mm256_subs_epu16(middle, low), _mm256_setzero_si256());
    const __m256i out = _mm256_permute4x64_epi64(_mm256_sub_epi16(high, up), 0xd8);
    to[0] = (vs)_mm256_castsi256_si128(out);
    to[1] = (vs)_mm256_extracti128_si256(out, 1);
}
#else
ALWAYS vs narrow_bfloat16(vf v) {
    const vu bits = (vu)v, rounded = bits + 0x7fff + (bits >> 16 & 1);
    return __builtin_convertvector(pick_u(v == v, rounded, bits | 0x400000) >> 16, vs);
}
#endif

#if LN_BYTES == 64

ALWAYS vf widen_float16(vs v) { return (vf)_mm512_cvtph_ps((__m256i)v); }
ALWAYS vs narrow_float16(vf v) { return (vs)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT); }

#elif LN_BYTES == 32

ALWAYS vf widen_float16(vs v) { return (vf)_mm256_cvtph_ps((__m128i)v); }
ALWAYS vs narrow_float16(vf v) { return (vs)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }

#else

/* Fraction and exponent in their places, then · 2^112, which is what the exponents' offsets differ by: subnormal ones too. */
ALWAYS vf widen_float16(vs v) {
    const vu bits = __builtin_convertvector(v, vu), sign = (bits & 0x8000) << 16, rest = (bits & 0x7fff) << 13;
    const vu finite = (vu)((vf)rest * 0x1p112f);
    return (vf)(pick_u((vi)(rest >= 0x0f800000), rest | 0x7f800000, finite) | sign);
}
/* Normal: rounded in the fraction's last place, of which a carry goes on into the exponent. Subnormal: 0.5 added, whose last place is
 * that of the result. From 65520 on: infinite. */
APART vs narrow_float16(vf v) {
    const vu bits = (vu)v, sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    const vu normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    const vu small = (vu)((vf)size + 0.5f) - 0x3f000000;
    const vu nan = 0x7e00 | (size >> 13 & 0x3ff);
    vu out = pick_u((vi)(size < 0x38800000), small, normal);
    out = pick_u((vi)(size >= 0x477ff000), (vu){0} + 0x7c00, out);
    out = pick_u((vi)(size > 0x7f800000), nan, out);
    return __builtin_convertvector(out | sign, vs);
}

#endif

/* The first n lanes (at most WF), nothing else is read; the others are 0. Four at a time, and what is left of four: single ones, through
 * memory, waited for their stores. */
ALWAYS vs load_half(const void *p, int n) {
    typedef uint64_t fours __attribute__((vector_size(LN_BYTES / 2)));
    vs whole;
    if (n == WF) {
        memcpy(&whole, p, sizeof whole);
        return whole;
    }
    const uint16_t *last = (const uint16_t *)p + (n & ~3);
    uint32_t two = 0;
    uint64_t four, left = 0;
    fours v = {0};
    if (n & 1) left = last[n & 2];
    if (n & 2) {
        memcpy(&two, last, sizeof two);
        left = left << 32 | two;
    }
    EACH(k, WF / 4) {
        if (4 * k + 4 <= n) {
            memcpy(&four, (const uint16_t *)p + 4 * k, sizeof four);
            v[k] = four;
        } else if (4 * k <= n) {
            v[k] = left;
        }
    }
    return (vs)v;
}

/* Eight elements at p in float64 */
#if WIDE_BYTES == 32
ALWAYS void widen_eight_float16(const void *p, vd to[2]) {
    __m256 v = _mm256_cvtph_ps(_mm_loadu_si128(p));
    __asm__("" : "+x"(v)); /* else gcc converts the lower half twice */
    to[0] = widen((vh)_mm256_castps256_ps128(v));
    to[1] = widen((vh)_mm256_extractf128_ps(v, 1));
}
ALWAYS void widen_eight_bfloat16(const void *p, vd to[2]) {
    const __m128i v = _mm_loadu_si128(p), zero = _mm_setzero_si128();
    to[0] = widen((vh)_mm_unpacklo_epi16(zero, v));
    to[1] = widen((vh)_mm_unpackhi_epi16(zero, v));
}
#else
ALWAYS void widen_eight(const void *p, vf (*widen_half)(vs), vd to[4]) {
    EACH(i, 2) {
        const vf v = widen_half(load_half((const uint16_t *)p + i * WF, WF));
        to[2 * i] = (vd){v[0], v[1]};
        to[2 * i + 1] = (vd){v[2], v[3]};
    }
}
ALWAYS void widen_eight_float16(const void *p, vd to[4]) { widen_eight(p, widen_float16, to); }
ALWAYS void widen_eight_bfloat16(const void *p, vd to[4]) { widen_eight(p, widen_bfloat16, to); }
#endif

/* n elements, `stride` bytes apart at p */
ALWAYS void widen_run(const char *p, ptrdiff_t stride, ptrdiff_t n, vf (*widen_half)(vs), ptrdiff_t ahead, float *to) {
    ptrdiff_t j = 0;
    for (; stride == 2 && j + WF <= n; j += WF) {
        if (ahead) fetch(p + 2 * j + ahead);
        vs v;
        memcpy(&v, p + 2 * j, sizeof v);
        store_f(to + j, widen_half(v));
    }
    while (j < n) {
        vs v = {0};
        const int left = n - j < WF ? (int)(n - j) : WF;
        for (int k = 0; k < left; ++k)
            v[k] = *(const uint16_t *)(p + (j + k) * stride);
        store_part_f(to + j, widen_half(v), left);
        j += left;
    }
}
/* The same by single elements, as far as they are written; how many that were */
ALWAYS ptrdiff_t narrow_part(const float *from, ptrdiff_t n, vs (*narrow_half)(vf), char *p, ptrdiff_t stride) {
    for (ptrdiff_t j = 0; j < n; j += WF) {
        const int left = n - j < WF ? (int)(n - j) : WF;
        const vs v = narrow_half(load_part_f(from + j, left));
        for (int k = 0; k < left; ++k)
            *(uint16_t *)(p + (j + k) * stride) = v[k];
    }
    return n;
}

/* Half a register past the caches; p aligned to its size */
ALWAYS void stream_half(void *p, vs v) {
#if LN_BYTES == 64
    _mm256_stream_si256((__m256i *)p, (__m256i)v);
#elif LN_BYTES == 32
    _mm_stream_si128((__m128i *)p, (__m128i)v);
#else
    memcpy(p, &v, sizeof v);
#endif
}

/* The first n lanes; n = WF: all, to an aligned p where they are streamed */
ALWAYS void write_half(uint16_t *p, vs v, int n, const int streams) {
    if (n < WF) {
        for (int k = 0; k < n; ++k)
            p[k] = v[k];
    } else if (streams) {
        stream_half(p, v);
    } else {
        memcpy(p, &v, sizeof v);
    }
}

ALWAYS void narrow_run(const float *from, ptrdiff_t n, vs (*narrow_half)(vf), char *p, ptrdiff_t stride, int streams) {
    ptrdiff_t j = 0;
    if (streams && stride == 2) {
        const ptrdiff_t off = (ptrdiff_t)((uintptr_t)p % sizeof(vs)) / 2, head = off ? WF - off : 0;
        j = narrow_part(from, head < n ? head : n, narrow_half, p, stride);
        for (; j + WF <= n; j += WF)
            stream_half(p + 2 * j, narrow_half(load_f(from + j)));
    }
    for (; stride == 2 && j + WF <= n; j += WF) {
        const vs v = narrow_half(load_f(from + j));
        memcpy(p + 2 * j, &v, sizeof v);
    }
    narrow_part(from + j, n - j, narrow_half, p + j * stride, stride);
}

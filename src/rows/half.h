/* half.h: float16 and bfloat16 to float32 and back, to nearest even: the same bits by the processor's instructions and without. Knows bits. */

typedef uint16_t vs __attribute__((vector_size(LN_BYTES / 2)));
typedef uint32_t vu __attribute__((vector_size(LN_BYTES)));

/* a where the mask is set, b elsewhere */
ALWAYS vu pick_u(vi mask, vu a, vu b) { return (a & (vu)mask) | (b & ~(vu)mask); }

/* A bfloat16 is the upper half of a float32. A NaN keeps its sign and stays one. */
ALWAYS vf widen_bfloat16(vs v) { return (vf)(__builtin_convertvector(v, vu) << 16); }
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

/* multiply_add.h: float64's a · b + c, rounded once on every target: the same bits. */
#if WIDE_BYTES > 16

ALWAYS vd multiply_add_d(vd a, vd b, vd c) { return add_exact_product(a, b, c); }

#elif defined(__aarch64__)

ALWAYS vd multiply_add_d(vd a, vd b, vd c) { return (vd)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }

#else

/* From operations that round: the exact product and c as three parts, of which the two small ones are added so that the last bit
 * says whether anything is lost (rounded to odd), and the great one last (Boldo and Melquiond 2008). Products that leave the range of
 * product_error go by the C library, whose function is the same by definition. */
APART vd multiply_add_d(vd a, vd b, vd c) {
    const vd p = a * b, size = magnitude(p);
    /* by intrinsics: comparisons joined by & and | are taken apart, lane by lane (gcc 12) */
    const __m128d zero = _mm_setzero_pd(), most = _mm_set1_pd(0x1p900);
    const __m128d largest =
        _mm_max_pd(_mm_max_pd((__m128d)size, (__m128d)magnitude(a)), _mm_max_pd((__m128d)magnitude(b), (__m128d)magnitude(c)));
    const __m128d nothing = _mm_or_pd(_mm_cmpeq_pd((__m128d)a, zero), _mm_cmpeq_pd((__m128d)b, zero));
    const __m128d safe =
        _mm_and_pd(_mm_cmple_pd(largest, most), _mm_or_pd(nothing, _mm_cmpge_pd((__m128d)size, _mm_set1_pd(0x1p-900))));
    if (_mm_movemask_pd(safe) != 3) {
        EACH(i, WD) c[i] = __builtin_fma(a[i], b[i], c[i]);
        return c;
    }
    vd low, lower, lost;
    const vd high = sum_and_error(c, product_error(a, b, p), &low);
    const vd most_of_it = sum_and_error(p, high, &lower);
    const vd rest = sum_and_error(lower, low, &lost);
    /* one step towards what is lost, where the last bit is 0 */
    const __m128i bits = (__m128i)rest, one = _mm_set1_epi64x(1), opposite = _mm_srli_epi64(bits ^ (__m128i)lost, 63);
    const __m128i step = _mm_sub_epi64(_mm_sub_epi64(one, opposite), opposite), odd = _mm_and_si128(bits, one);
    const __m128i wanted = _mm_and_si128(_mm_sub_epi64(odd, one), (__m128i)_mm_cmpneq_pd((__m128d)lost, _mm_setzero_pd()));
    const vd result = most_of_it + (vd)_mm_add_epi64(bits, _mm_and_si128(step, wanted));
    return pick((vm)nothing, p + c, result); /* the sign of 0 */
}

#endif

/* masks.h: the elements of a row that a mask lets through, packed side by side, and unpacked. Knows bytes. Does not know views. */

/* What a mask of `cols` bytes lets through: how many, and whether those are the first */
typedef struct {
    ptrdiff_t live;
    int leading;
} mask_shape;

/* How many of eight bytes, as one number, are not 0 */
ALWAYS int count_bytes(uint64_t bytes) {
    const uint64_t low = 0x7f7f7f7f7f7f7f7f, set = (((bytes & low) + low) | bytes) & ~low;
    return (int)((set >> 7) * 0x0101010101010101 >> 56);
}

NEVER mask_shape survey_mask(const uint8_t *mask, ptrdiff_t cols) {
    ptrdiff_t live = 0, leading = -1, j = 0; /* leading: not known yet */
    for (; j + 8 <= cols; j += 8) {
        uint64_t bytes;
        memcpy(&bytes, mask + j, 8);
        const int count = count_bytes(bytes);
        if (count < 8 && leading < 0)
            for (leading = j; mask[leading];)
                ++leading;
        live += count;
    }
    for (; j < cols; ++j) {
        if (!mask[j] && leading < 0) leading = j;
        live += mask[j] != 0;
    }
    return (mask_shape){live, leading < 0 || live == leading};
}

#if LN_BYTES == 64

/* The mask's next W bytes, of which `left` are there, as a mask register's bits */
ALWAYS unsigned mask_bits(const uint8_t *mask, ptrdiff_t left) {
    uint8_t bytes[16] = {0};
    if (left >= 16 && W == 16)
        memcpy(bytes, mask, 16);
    else if (left >= W)
        memcpy(bytes, mask, 8);
    else
        memcpy(bytes, mask, (size_t)left);
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
    return _mm512_test_epi32_mask(wide, wide);
}
ALWAYS vec pack_vector(unsigned bits, vec v) {
    return W == 16 ? (vec)_mm512_maskz_compress_ps((__mmask16)bits, (__m512)v)
                   : (vec)_mm512_maskz_compress_pd((__mmask8)bits, (__m512d)v);
}
ALWAYS vec unpack_vector(unsigned bits, vec v) {
    return W == 16 ? (vec)_mm512_maskz_expand_ps((__mmask16)bits, (__m512)v)
                   : (vec)_mm512_maskz_expand_pd((__mmask8)bits, (__m512d)v);
}

/* Writes up to W elements too many */
NEVER void pack_row(const real *row, const uint8_t *mask, ptrdiff_t cols, real *to) {
    for (ptrdiff_t j = 0; j < cols; j += W) {
        const ptrdiff_t left = cols - j;
        const unsigned bits = mask_bits(mask + j, left);
        store(to, pack_vector(bits, load_n(row + j, left < W ? (int)left : W)));
        to += __builtin_popcount(bits);
    }
}
/* 0 where the mask hides; reads up to W elements too many */
NEVER void unpack_row(const real *from, const uint8_t *mask, ptrdiff_t cols, real *row) {
    for (ptrdiff_t j = 0; j < cols; j += W) {
        const ptrdiff_t left = cols - j;
        const unsigned bits = mask_bits(mask + j, left);
        store_n(row + j, unpack_vector(bits, load(from)), left < W ? (int)left : W);
        from += __builtin_popcount(bits);
    }
}

#else

NEVER void pack_row(const real *row, const uint8_t *mask, ptrdiff_t cols, real *to) {
    for (ptrdiff_t j = 0; j < cols; ++j) {
        *to = row[j];
        to += mask[j] != 0;
    }
}
NEVER void unpack_row(const real *from, const uint8_t *mask, ptrdiff_t cols, real *row) {
    for (ptrdiff_t j = 0; j < cols; ++j) {
        row[j] = mask[j] ? *from : 0;
        from += mask[j] != 0;
    }
}

#endif

/* `instead` where the mask hides */
NEVER void hide_row(const real *row, const uint8_t *mask, ptrdiff_t cols, real instead, real *to) {
    for (ptrdiff_t j = 0; j < cols; ++j)
        to[j] = mask[j] ? row[j] : instead;
}

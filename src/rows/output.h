/* output.h: how a row of results is written. Knows alignment and formats. Does not know what is written. */

/* Elements of a row from p on before the first W that are aligned, all together: what is written first. */
ALWAYS int head_in(const void *p, ptrdiff_t cols, const int format) {
    const ptrdiff_t off = (ptrdiff_t)((uintptr_t)p % (size_t)(W * size_in(format))) / size_in(format);
    const ptrdiff_t head = off ? W - off : 0;
    return (int)(head < cols ? head : cols);
}
ALWAYS int head_of(const void *p, ptrdiff_t cols) { return head_in(p, cols, DTYPE_OF_REAL); }

/* How many lanes n elements fill at most */
ALWAYS int at_most(ptrdiff_t n) { return n < W ? (int)n : W; }

/* No part of a line may go past the caches and another through them: each such line took a third of a
 * microsecond. So what is streamed are whole lines, or pieces of 16 bytes that follow each other at once. Of n elements of `size` bytes at p, how many lie before the first whole line, and before the last one's end */
ALWAYS ptrdiff_t before_lines(const void *p, ptrdiff_t n, ptrdiff_t size) {
    const ptrdiff_t off = (ptrdiff_t)((uintptr_t)p % LINE), before = off ? (LINE - off) / size : 0;
    return before < n ? before : n;
}
ALWAYS ptrdiff_t end_of_lines(const void *p, ptrdiff_t n, ptrdiff_t size) {
    const ptrdiff_t before = before_lines(p, n, size);
    return n - (n - before) % (LINE / size);
}

/* The first n lanes of v to p; n = W: all, to an aligned p where they are streamed. A streamed part goes in pieces of 16 bytes, so that
 * the end of a row and the beginning of the next, which share a cache line, leave for memory together. */
ALWAYS void write_n(real *p, vec v, int n, const int streams) {
    enum { PIECE = 16 / sizeof(real) };
    if (!streams) {
        store_n(p, v, n);
    } else if (n == W) {
        stream(p, v);
    } else if (n % PIECE == 0 && (uintptr_t)p % 16 == 0) {
        real part[W];
        store(part, v);
        for (int i = 0; i < n && i < W; i += PIECE)
            stream_piece(p + i, part + i);
    } else {
        store_n(p, v, n);
    }
}

/* The same in this format, rounded to nearest even where that is narrower */
ALWAYS void write_as(void *p, vec v, int n, const int streams, const int format) {
    if (format == DTYPE_OF_REAL) write_n(p, v, n, streams);
#if HAS_HALF
    if (format == LN_FLOAT16) write_half(p, narrow_float16(v), n, streams);
    if (format == LN_BFLOAT16) write_half(p, narrow_bfloat16(v), n, streams);
#endif
}
/* The same of `count` registers, `pitch` elements apart */
ALWAYS void write_all(void *p, ptrdiff_t pitch, const vec *v, const int count, int n, const int streams, const int format) {
#if HAS_HALF && NARROWS_TWO
    if (format == LN_BFLOAT16 && n == W && count % 2 == 0 && are_numbers(v, count)) {
        vs narrowed[8];
        EACH(k, count / 2) narrow_two(v + 2 * k, narrowed + 2 * k);
        EACH(k, count) write_half(place(p, k * pitch, format), narrowed[k], n, streams);
        return;
    }
#endif
    EACH(k, count) write_as(place(p, k * pitch, format), v[k], n, streams, format);
}

/* output.h: how a row of results is written. Knows alignment. Does not know what is written. */

/* Elements of a row from p on before the first that is aligned to a register: what is written first. */
ALWAYS int head_of(const real *p, ptrdiff_t cols) {
    const ptrdiff_t off = (ptrdiff_t)((uintptr_t)p % LN_BYTES) / (ptrdiff_t)sizeof(real);
    const ptrdiff_t head = off ? W - off : 0;
    return (int)(head < cols ? head : cols);
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

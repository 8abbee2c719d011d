/* stored.h: the elements of a row as they are stored: reals, or a half type. `format` is a constant: LN_FLOAT16, LN_BFLOAT16, or the dtype
 * of the reals themselves. */

/* Bytes of a cache line */
#define LINE 64

/* Bytes of an element */
ALWAYS ptrdiff_t size_in(const int format) { return format == DTYPE_OF_REAL ? (ptrdiff_t)sizeof(real) : 2; }

/* The most of them in a line */
#define MOST_IN_LINE (LINE / (HAS_HALF ? 2 : (int)sizeof(real)))

/* Where element j is, to be read or written */
ALWAYS const void *element(const void *row, ptrdiff_t j, const int format) { return (const char *)row + j * size_in(format); }
ALWAYS void *place(void *row, ptrdiff_t j, const int format) { return (char *)row + j * size_in(format); }

/* n elements (at most W) from p on; 0 for the others */
ALWAYS vec read_n(const void *p, int n, const int format) {
#if HAS_HALF
    if (format == LN_FLOAT16) return widen_float16(load_half(p, n));
    if (format == LN_BFLOAT16) return widen_bfloat16(load_half(p, n));
#endif
    return load_n(p, n);
}

/* n elements as reals: where they lie, or widened to the room */
ALWAYS const real *reals_of(const void *p, ptrdiff_t n, const int format, real *room) {
    if (format == DTYPE_OF_REAL) return p;
    read_run(p, size_in(format), format, n, 0, room);
    return room;
}

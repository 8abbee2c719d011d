/* runs.h: reals side by side, or some way apart, brought side by side and back. */

/* n reals side by side; masked stores take ten times as long as others where there is no AVX-512 */
ALWAYS void copy_reals(const real *from, ptrdiff_t n, real *to) {
    enum { PIECE = 16 / sizeof(real) };
    if (n >= W) {
        for (ptrdiff_t j = 0; j + W <= n; j += W)
            store(to + j, load(from + j));
        if (n % W) store(to + n - W, load(from + n - W));
    } else if (LN_BYTES == 64) {
        store_n(to, load_n(from, (int)n), (int)n);
    } else if (n >= PIECE) {
        memcpy(to, from, 16);
        memcpy(to + n - PIECE, from + n - PIECE, 16);
    } else {
        for (ptrdiff_t j = 0; j < n; ++j)
            to[j] = from[j];
    }
}

/* n reals, `stride` bytes apart at p */
ALWAYS void copy_run(const char *p, ptrdiff_t stride, ptrdiff_t n, real *to) {
    if (stride == sizeof(real)) {
        copy_reals((const real *)p, n, to);
    } else {
        for (ptrdiff_t j = 0; j < n; ++j)
            to[j] = *(const real *)(p + j * stride);
    }
}
ALWAYS void spread_run(const real *from, ptrdiff_t n, char *p, ptrdiff_t stride) {
    if (stride == sizeof(real)) {
        copy_reals(from, n, (real *)p);
    } else {
        for (ptrdiff_t j = 0; j < n; ++j)
            *(real *)(p + j * stride) = from[j];
    }
}

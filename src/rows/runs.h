/* runs.h: elements some way apart, brought side by side; squares turned. */

/* n reals, `stride` bytes apart at p */
ALWAYS void copy_run(const char *p, ptrdiff_t stride, ptrdiff_t n, real *to) {
    ptrdiff_t j = 0;
    if (stride == sizeof(real)) {
        for (; j + W <= n; j += W)
            store(to + j, load((const real *)p + j));
        if (j < n) store_n(to + j, load_n((const real *)p + j, (int)(n - j)), (int)(n - j));
    } else {
        for (; j < n; ++j)
            to[j] = *(const real *)(p + j * stride);
    }
}
ALWAYS void spread_run(const real *from, ptrdiff_t n, char *p, ptrdiff_t stride) {
    ptrdiff_t j = 0;
    if (stride == sizeof(real)) {
        for (; j + W <= n; j += W)
            store((real *)p + j, load(from + j));
        if (j < n) store_n((real *)p + j, load_n(from + j, (int)(n - j)), (int)(n - j));
    } else {
        for (; j < n; ++j)
            *(real *)(p + j * stride) = from[j];
    }
}

/* runs.h: elements some way apart, brought side by side; squares turned. */

/* n reals, `stride` bytes apart at p */
ALWAYS void copy_run(const char *p, ptrdiff_t stride, ptrdiff_t n, real *to) {
    if (stride == sizeof(real))
        memcpy(to, p, (size_t)n * sizeof(real));
    else
        for (ptrdiff_t j = 0; j < n; ++j)
            to[j] = *(const real *)(p + j * stride);
}
ALWAYS void spread_run(const real *from, ptrdiff_t n, char *p, ptrdiff_t stride) {
    if (stride == sizeof(real))
        memcpy(p, from, (size_t)n * sizeof(real));
    else
        for (ptrdiff_t j = 0; j < n; ++j)
            *(real *)(p + j * stride) = from[j];
}

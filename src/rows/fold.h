/* fold.h: dweight and dbias from the blocks' sums, in the blocks' order. */

/* One gradient, eight-byte lanes at column j (or the first n of them): Σ over the blocks, float64 as pairs, where an infinite
 * sum stands alone */
ALWAYS vd fold_lanes(const double *p, ptrdiff_t blocks, ptrdiff_t cols, int n) {
    const int whole = n == WD;
    vd s = whole ? load_d(p) : load_part_d(p, n);
#if REAL_IS_F32
    for (ptrdiff_t b = 1; b < blocks; ++b) {
        const double *q = p + b * PLANES * cols;
        s += whole ? load_d(q) : load_part_d(q, n);
    }
    return s;
#else
    vd e = whole ? load_d(p + cols) : load_part_d(p + cols, n);
    for (ptrdiff_t b = 1; b < blocks; ++b) {
        const double *q = p + b * PLANES * cols;
        two_sum(&s, &e, whole ? load_d(q) : load_part_d(q, n));
        e += whole ? load_d(q + cols) : load_part_d(q + cols, n);
    }
    return s + (vd)((vm)e & (s - s == 0));
#endif
}

NEVER void fold_plane(const double *sums, ptrdiff_t blocks, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, real *out) {
    for (ptrdiff_t j = first; j < last; j += WD) {
        double total[WD];
        const int n = last - j < WD ? (int)(last - j) : WD;
        store_d(total, n == WD ? fold_lanes(sums + j, blocks, cols, WD) : fold_lanes(sums + j, blocks, cols, n));
        for (int i = 0; i < n; ++i)
            out[j + i] = (real)total[i];
    }
}

static void fold_blocks(const double *sums, ptrdiff_t blocks, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, void *dweight,
                        void *dbias) {
    const fp_mode mode = fp_enter();
    if (dweight) fold_plane(sums, blocks, first, last, cols, dweight);
    if (dbias) fold_plane(sums + PLANES / 2 * cols, blocks, first, last, cols, dbias);
    fp_leave(mode);
}

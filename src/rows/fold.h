/* fold.h: dweight and dbias from the blocks' sums, in the blocks' order. */

/* Columns folded at a time: their sums stay in the first-level cache while the blocks' go by. */
#define FOLDED 256

/* One gradient: Σ over the blocks, float64 as pairs, where an infinite sum stands alone. sums: the gradient's first plane */
NEVER void fold_plane(const double *sums, ptrdiff_t blocks, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, real *out) {
    double s[FOLDED + WD], e[FOLDED + WD];
    for (ptrdiff_t at = first; at < last; at += FOLDED) {
        const ptrdiff_t width = last - at < FOLDED ? last - at : FOLDED;
        for (ptrdiff_t j = 0; j < width; j += WD) {
            store_d(s + j, (vd){0});
            store_d(e + j, (vd){0});
        }
        for (ptrdiff_t b = 0; b < blocks; ++b) {
            const double *p = sums + b * PLANES * cols + at;
            for (ptrdiff_t j = 0; j < width; j += WD) {
                const int n = left_of(j, width);
                vd t = n == WD ? load_d(p + j) : load_part_d(p + j, n), total = load_d(s + j);
                if (REAL_IS_F32) {
                    total += t;
                } else {
                    vd error = load_d(e + j);
                    two_sum(&total, &error, t);
                    error += n == WD ? load_d(p + cols + j) : load_part_d(p + cols + j, n);
                    store_d(e + j, error);
                }
                store_d(s + j, total);
            }
        }
        for (ptrdiff_t j = 0; j < width; ++j)
            out[at + j] = (real)(REAL_IS_F32 || s[j] - s[j] != 0 ? s[j] : s[j] + e[j]);
    }
}

static void fold_blocks(const double *sums, ptrdiff_t blocks, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, void *dweight,
                        void *dbias) {
    const fp_mode mode = fp_enter();
    if (dweight) fold_plane(sums, blocks, first, last, cols, dweight);
    if (dbias) fold_plane(sums + PLANES / 2 * cols, blocks, first, last, cols, dbias);
    fp_leave(mode);
}

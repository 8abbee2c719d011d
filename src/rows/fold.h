/* fold.h: dweight and dbias from the blocks' sums, in the blocks' order. */

/* Registers of columns folded at a time: their sums stay in the first-level cache while the blocks' go by. */
#define FOLDED (2048 / WIDE_BYTES)

/* One gradient, columns first … last − 1: the sum over the blocks. sums: the gradient's first plane */
NEVER void fold_plane(const double *sums, ptrdiff_t blocks, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, real *out) {
    block_sum total[FOLDED];
    for (ptrdiff_t at = first; at < last; at += FOLDED * WD) {
        const int used = (int)(last - at < FOLDED * WD ? (last - at + WD - 1) / WD : FOLDED);
        for (int k = 0; k < used; ++k)
            total[k] = sum_of((vd){0});
        for (ptrdiff_t b = 0; b < blocks; ++b) {
            const double *p = sums + b * PLANES * cols;
            for (int k = 0; k < used; ++k) {
                const ptrdiff_t j = at + k * WD;
                total[k] = add_sums(total[k], load_sum(p + j, cols, left_of(j, last)));
            }
        }
        for (int k = 0; k < used; ++k) {
            const vd found = total_of(total[k]);
            for (int i = 0; i < left_of(at + k * WD, last); ++i)
                out[at + k * WD + i] = (real)found[i];
        }
    }
}

static void fold_blocks(const double *sums, ptrdiff_t blocks, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, void *dweight,
                        void *dbias) {
    const fp_mode mode = fp_enter();
    if (dweight) fold_plane(sums, blocks, first, last, cols, dweight);
    if (dbias) fold_plane(sums + PLANES / 2 * cols, blocks, first, last, cols, dbias);
    fp_leave(mode);
}

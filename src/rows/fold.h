/* fold.h: dweight and dbias from the blocks' sums, in the blocks' order. */

/* Columns folded at a time: as many as there are registers for their sums, four lines or more of each block's. */
#define FOLDED (32 / WD > 8 ? 8 : 32 / WD)

/* Columns at … of one gradient: the sum over the blocks, in their order; `left` columns are there. sums: the first block's */
ALWAYS void fold_columns(const double *sums, ptrdiff_t blocks, ptrdiff_t cols, ptrdiff_t left, real *out) {
    block_sum total[FOLDED];
    EACH(k, FOLDED) total[k] = sum_of((vd){0});
    for (ptrdiff_t b = 0; b < blocks; ++b) {
        EACH(k, FOLDED) total[k] = add_sums(total[k], load_sum(sums + b * PLANES * cols + k * WD, cols, left_of(k * WD, left)));
    }
    EACH(k, FOLDED) {
        const vd found = total_of(total[k]);
        for (int i = 0; i < left_of(k * WD, left); ++i)
            out[k * WD + i] = (real)found[i];
    }
}

/* One gradient, columns first … last − 1. sums: the gradient's first plane */
NEVER void fold_plane(const double *sums, ptrdiff_t blocks, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, real *out) {
    ptrdiff_t j = first;
    for (; j + FOLDED * WD <= last; j += FOLDED * WD)
        fold_columns(sums + j, blocks, cols, FOLDED * WD, out + j);
    if (j < last) fold_columns(sums + j, blocks, cols, last - j, out + j);
}

static void fold_blocks(const double *sums, ptrdiff_t blocks, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, void *dweight,
                        void *dbias) {
    const fp_mode mode = fp_enter();
    if (dweight) fold_plane(sums, blocks, first, last, cols, dweight);
    if (dbias) fold_plane(sums + PLANES / 2 * cols, blocks, first, last, cols, dbias);
    fp_leave(mode);
}

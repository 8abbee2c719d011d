/* xhat.h: xhat in float64 whatever the row's type, and sums along a row. Knows a row. For the pieces (split.h, derivatives.h), which
 * compute in float64 and round once, at the end. */

/* xhat = ((x − hi) − lo) · rstd */
typedef struct {
    vd hi, lo, rstd;
} row_center;

/* WD elements of xhat, of which n are there: 0 for the others */
ALWAYS vd xhat_at(const real *x, int n, const row_center *c) {
    const vd xhat = ((load_n_double(x, n) - c->hi) - c->lo) * c->rstd;
    return n == WD ? xhat : keep_part(xhat, n);
}

/* WD elements of v · by, of which n are there: 0 for the others; `by` NULL: ones */
ALWAYS vd product_at(const real *v, const real *by, int n) {
    return by ? load_n_double(v, n) * load_n_double(by, n) : load_n_double(v, n);
}

/* What follows, for the WD columns at j, of which n are there: a constant but at the end of a row. They belong to register i of a row's
 * eight lanes, element j to lane j mod 8. */
#define ALONG_ROW(cols, j, i, n, ...)                                                                                              \
    for (ptrdiff_t at_ = 0; at_ < (cols); at_ += 8) {                                                                              \
        if (at_ + 8 <= (cols)) {                                                                                                   \
            EACH(i, REGS) {                                                                                                        \
                const ptrdiff_t j = at_ + i * WD;                                                                                  \
                const int n = WD;                                                                                                  \
                __VA_ARGS__                                                                                                        \
            }                                                                                                                      \
        } else {                                                                                                                   \
            EACH(i, REGS) {                                                                                                        \
                const ptrdiff_t j = at_ + i * WD;                                                                                  \
                const int n = left_of(j, (cols));                                                                                  \
                if (n) {                                                                                                           \
                    __VA_ARGS__                                                                                                    \
                }                                                                                                                  \
            }                                                                                                                      \
        }                                                                                                                          \
    }

/* A sum along a row, in eight lanes: float64, for rows of float64 with its rounding errors (sums_f32.h, sums_f64.h) */
typedef struct {
    block_sum lanes[REGS];
} row_sum;

ALWAYS void clear_row_sum(row_sum *s) { EACH(i, REGS) s->lanes[i] = sum_of((vd){0}); }
ALWAYS void add_to_row_sum(row_sum *s, const int i, vd terms) { s->lanes[i] = add_terms(s->lanes[i], terms); }

/* The lanes added, in their order */
ALWAYS double total_of_row(const row_sum *s) {
    pair total = {0, 0};
    EACH(i, REGS) {
        const vd lanes = total_of(s->lanes[i]);
        EACH(k, WD) add_to_pair(&total, lanes[k]);
    }
    return total.sum - total.sum == 0 ? total.sum + total.error : total.sum;
}

/* n columns of a block's sums += v */
ALWAYS void add_to_plane(double *sums, ptrdiff_t pitch, vd v, int n) {
    store_sum(sums, pitch, add_terms(load_sum(sums, pitch, n), v), n);
}

/* A piece's kernel, under the kernels' own floating-point mode */
#define PIECE_KERNEL(ROWS, BODY)                                                                                                   \
    static void ROWS(const ln_operands *operands, ptrdiff_t first, ptrdiff_t last, double *sums) {                                 \
        const fp_mode mode = fp_enter();                                                                                           \
        BODY(operands, first, last, sums);                                                                                         \
        fp_leave(mode);                                                                                                            \
    }

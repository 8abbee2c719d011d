/* sums_f64.h: how a block's sums of dweight and dbias are kept for float64: as pairs, a plane of sums and one of their errors each. */
#define PLANES 4

/* Columns of one sum */
typedef struct {
    vd sum, error;
} block_sum;

/* The first n columns at p, their errors `pitch` elements on */
ALWAYS block_sum load_sum(const double *p, ptrdiff_t pitch, int n) { return (block_sum){load_n_d(p, n), load_n_d(p + pitch, n)}; }
ALWAYS void store_sum(double *p, ptrdiff_t pitch, block_sum a, int n) {
    store_n_d(p, a.sum, n);
    store_n_d(p + pitch, a.error, n);
}
ALWAYS block_sum add_sums(block_sum a, block_sum b) {
    two_sum(&a.sum, &a.error, b.sum);
    a.error += b.error;
    return a;
}
ALWAYS block_sum add_terms(block_sum a, vd terms) {
    two_sum(&a.sum, &a.error, terms);
    return a;
}
ALWAYS block_sum sum_of(vd terms) { return (block_sum){terms, (vd){0}}; }
/* an infinite sum stands alone: its error is no number */
ALWAYS vd total_of(block_sum a) { return a.sum + (vd)((vm)a.error & (a.sum - a.sum == 0)); }

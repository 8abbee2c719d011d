/* sums_f32.h: how a block's sums of dweight and dbias are kept for float32: in float64, a plane for each. */
#define PLANES 2

/* Columns of one sum */
typedef struct {
    vd sum;
} block_sum;

/* The first n columns at p; `pitch` is unused: there is one plane */
ALWAYS block_sum load_sum(const double *p, ptrdiff_t pitch, int n) {
    (void)pitch;
    return (block_sum){load_n_d(p, n)};
}
ALWAYS void store_sum(double *p, ptrdiff_t pitch, block_sum a, int n) {
    (void)pitch;
    store_n_d(p, a.sum, n);
}
ALWAYS block_sum add_sums(block_sum a, block_sum b) { return (block_sum){a.sum + b.sum}; }
ALWAYS block_sum add_terms(block_sum a, vd terms) { return (block_sum){a.sum + terms}; }
ALWAYS block_sum sum_of(vd terms) { return (block_sum){terms}; }
ALWAYS vd total_of(block_sum a) { return a.sum; }

/* pair.h: two rows of a strip, column by column: dx out, and the rows' terms of dweight and dbias. Knows columns. Does not know blocks. */

/* Rows whose terms are added as (r0 + r1) + (r2 + r3) before they go to the block's sums: for float32 two roundings, what the bounds
 * leave. They are computed in pairs: four rows' constants are more than 16 registers hold, and where a row's length is a
 * multiple of 4096 bytes the twelve lines of four rows' x, dy and dx would fight for the eight ways of one set of the cache. */
#define STRIP 4
#define PAIR 2
/* Columns for which all strips of a group are computed in turn: the block's sums, and the first pair's terms that wait for the
 * second's, stay in the first-level cache for that long. */
#define TILE (1024 / (int)sizeof(real))

/* A strip's terms of dweight and dbias, for a tile; slot 0 is the tile's first column */
typedef struct {
    real dweight[TILE + W], dbias[TILE + W];
} strip_terms;

/* A pair's constants in registers */
typedef struct {
    vec hi[PAIR], lo[PAIR], rstd[PAIR], k1[PAIR], k2[PAIR];
} pair_constants;

/* What is the same for every column of a pair; constants of the call, so that the compiler makes a copy for each. */
typedef struct {
    int rows;      /* 1 or 2 */
    int follows;   /* its terms are added to those that are there, not put in their place */
    int any_exact; /* a row goes the exact way */
    int streams;   /* dx past the caches */
} pair_kind;

/* Columns j … j + n − 1 of the pair whose first row is row `at` of the group.
 * dx = rstd · (h − mean_h − xhat · mean_h_xhat),   h = dy · weight;   dweight += dy · xhat,   dbias += dy */
ALWAYS void pair_columns(const real *x, const real *dy, const real *weight, const pair_constants *c, const group_gradient *g,
                         int at, ptrdiff_t cols, ptrdiff_t j, int n, const pair_kind kind, strip_terms *terms, ptrdiff_t slot,
                         real *dx) {
    vec w = splat(1), x_r[PAIR], dy_r[PAIR], dx_r[PAIR], term[PAIR];
    /* All loads before all stores: a load behind a store to the same place in another page waits for it. */
    if (weight) w = load_n(weight + j, n);
    EACH(r, kind.rows) {
        const ptrdiff_t k = r * cols + j;
        x_r[r] = load_n(x + k, n);
        dy_r[r] = load_n(dy + k, n);
        /* From memory, the next group's rows are fetched under this one's arithmetic: a seventh of the time. */
        if (kind.streams && cols <= GROUP_COLUMNS) {
            fetch(x + k + GROUP * cols);
            fetch(dy + k + GROUP * cols);
        }
    }
    EACH(r, kind.rows) {
        if (kind.any_exact && g->exact[at + r]) {
            real dx_part[W] = {0}, term_part[W] = {0};
            const ptrdiff_t k = r * cols + j;
            scale_columns(x + k, dy + k, weight ? weight + j : 0, n, &g->rows[at + r], dx_part, term_part);
            dx_r[r] = load(dx_part);
            term[r] = load(term_part);
        } else {
            const vec d = (x_r[r] - c->hi[r]) - c->lo[r];
            const vec h = weight ? dy_r[r] * w : dy_r[r];
            dx_r[r] = (h * c->rstd[r] - c->k1[r]) - d * c->k2[r];
            term[r] = dy_r[r] * (d * c->rstd[r]);
        }
    }
    if (terms) {
        vec dweight = term[0], dbias = dy_r[0];
        if (kind.rows == PAIR) dweight += term[1], dbias += dy_r[1];
        if (kind.follows) {
            dweight = load_n(terms->dweight + slot, n) + dweight;
            dbias = load_n(terms->dbias + slot, n) + dbias;
        }
        store_n(terms->dweight + slot, dweight, n);
        store_n(terms->dbias + slot, dbias, n);
    }
    if (dx) {
        EACH(r, kind.rows) write_n(dx + r * cols + j, dx_r[r], n, kind.streams);
    }
}

/* Columns first … last − 1 of a pair */
ALWAYS void pair_pass(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                      ptrdiff_t first, ptrdiff_t last, const pair_kind kind, strip_terms *terms, real *dx) {
    pair_constants c;
    EACH(r, kind.rows) {
        c.hi[r] = splat(g->hi[at + r]);
        c.lo[r] = splat(g->lo[at + r]);
        c.rstd[r] = splat(g->rstd[at + r]);
        c.k1[r] = splat(g->k1[at + r]);
        c.k2[r] = splat(g->k2[at + r]);
    }
    ptrdiff_t j = first;
    if (kind.streams && first == 0) {
        j = head_of(dx, last);
        if (j > 0) pair_columns(x, dy, weight, &c, g, at, cols, 0, (int)j, kind, terms, 0, dx);
    }
    for (; j + W <= last; j += W)
        pair_columns(x, dy, weight, &c, g, at, cols, j, W, kind, terms, j - first, dx);
    if (j < last) pair_columns(x, dy, weight, &c, g, at, cols, j, (int)(last - j), kind, terms, j - first, dx);
}

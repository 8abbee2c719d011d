/* strip.h: the rows of a strip, column by column: dx out, and the rows' terms of dweight and dbias. Knows columns. Does not know blocks. */

/* Rows whose terms are added as (r0 + r1) + (r2 + r3) before they go to the block's sums: for float32 two roundings. With x − hi, rstd,
 * their product, − lo · rstd, the product with dy, and the result's own that makes the eight that the bound of dweight allows. */
#define STRIP 4
/* Rows computed at once: all four where their constants find registers, else two and two. */
#define AT_ONCE (LN_REGISTERS / 8)
#define PAIR 2
/* Columns for which all strips of a group are computed in turn: the terms that wait to be added up stay in the first-level cache. */
#define TILE (1024 / (int)sizeof(real))

/* Room for a tile of a row: column j in slot j − first, or so much later that those after the head are aligned */
#define SLOTS (TILE + MOST_IN_LINE + W)

/* A strip's terms of dweight and dbias, for a tile */
typedef struct {
    real dweight[SLOTS], dbias[SLOTS];
} __attribute__((aligned(64))) strip_terms;

/* How dx is written: through the caches; past them; past them, but not before the strip's last load: a load behind a streamed store to the
 * same place in another page waits until that has reached memory, seven times as long as the rest. That takes a tenth longer where nothing
 * would have waited. */
enum { STORED, STREAMED, STAGED };

/* The columns of a tile */
typedef struct {
    ptrdiff_t first, last; /* at most TILE columns and a head */
    int head;              /* columns before the first whose dx is aligned, at most a line; 0 but for the first tile of a range */
    int slot;              /* of the first column */
    ptrdiff_t at, pitch;   /* where the first column's sums lie, and how far apart their planes */
    int biased;            /* whether those of dbias are wanted */
    int begins;            /* whether they are put there, not added to what is there */
    ptrdiff_t ahead;       /* elements from what is read, from memory, to what is fetched then */
} tile;

/* The constants of rows in registers */
typedef struct {
    vec minus_hi[AT_ONCE], rstd[AT_ONCE], rest[AT_ONCE], k1[AT_ONCE], slope[AT_ONCE];
} row_constants;

/* What is the same for every column; constants of the call, so that the compiler makes a copy for each. */
typedef struct {
    int rows;      /* 1, 2 or 4 */
    int follows;   /* their terms are added to those that are there, not put in their place */
    int any_exact; /* a row goes the exact way: they are reals */
    int writing;   /* STORED, or from memory and STREAMED or STAGED */
    int format;    /* of x, dy and dx (stored.h) */
} rows_kind;

/* Columns j … j + n − 1 of the rows from row `at` of the group on; dx: of the first row from column j on, the others `pitch` apart
 * dx = rstd · (h − mean_h − xhat · mean_h_xhat),   h = dy · weight;   dweight += dy · xhat,   dbias += dy */
ALWAYS void compute_columns(const void *x, const void *dy, const real *weight, const row_constants *c, const group_gradient *g,
                            int at, ptrdiff_t cols, ptrdiff_t j, int n, const rows_kind kind, strip_terms *terms, ptrdiff_t slot,
                            ptrdiff_t ahead, ptrdiff_t pitch, void *dx) {
    vec w = splat(1), x_r[STRIP], dy_r[STRIP], dx_r[STRIP], term[STRIP];
    /* All loads before all stores: a load behind a store to the same place in another page waits for it. */
    if (weight) w = load_n(weight + j, n);
    EACH(r, kind.rows) {
        const ptrdiff_t k = r * cols + j;
        x_r[r] = read_n(element(x, k, kind.format), n, kind.format);
        dy_r[r] = read_n(element(dy, k, kind.format), n, kind.format);
        /* From memory, what comes next is fetched under this arithmetic: a seventh of the time. */
        if (kind.writing != STORED) {
            fetch(element(x, k + ahead, kind.format));
            fetch(element(dy, k + ahead, kind.format));
        }
    }
    EACH(r, kind.rows) {
        const vec d = x_r[r] + c->minus_hi[r];
        const vec h = weight ? dy_r[r] * w : dy_r[r];
        /* h · rstd is rounded before k1 is taken off: where all h are one they cancel */
        dx_r[r] = multiply_add(d, c->slope[r], h * c->rstd[r] - c->k1[r]);
        term[r] = dy_r[r] * multiply_add(d, c->rstd[r], c->rest[r]);
        if (kind.any_exact && g->exact[at + r]) {
            real dx_part[W] = {0}, term_part[W] = {0};
            const ptrdiff_t k = r * cols + j;
            scale_columns((const real *)x + k, (const real *)dy + k, weight ? weight + j : 0, n, &g->rows[at + r], dx_part,
                          term_part);
            dx_r[r] = load(dx_part);
            if (!g->fit[at + r]) term[r] = load(term_part); /* it depends on x alone: the same with and without dx */
        }
    }
    if (terms) {
        vec dweight = term[0], dbias = dy_r[0];
        if (kind.rows > 1) dweight += term[1], dbias += dy_r[1];
        if (kind.rows == 4) dweight += term[2] + term[3], dbias += dy_r[2] + dy_r[3];
        if (kind.follows) {
            dweight = load_n(terms->dweight + slot, n) + dweight;
            dbias = load_n(terms->dbias + slot, n) + dbias;
        }
        store_n(terms->dweight + slot, dweight, n);
        store_n(terms->dbias + slot, dbias, n);
    }
    if (dx) write_all(dx, pitch, dx_r, kind.rows, n, kind.writing == STREAMED, kind.format);
}

/* The columns of a tile, for kind.rows rows; dx: from the tile's first column on */
ALWAYS void compute_rows(const void *x, const void *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                         const tile *t, const rows_kind kind, strip_terms *terms, ptrdiff_t pitch, void *dx) {
    row_constants c;
    EACH(r, kind.rows) {
        c.minus_hi[r] = splat(g->minus_hi[at + r]);
        c.rstd[r] = splat(g->rstd[at + r]);
        c.rest[r] = splat(g->rest[at + r]);
        c.k1[r] = splat(g->k1[at + r]);
        c.slope[r] = splat(g->slope[at + r]);
    }
    const ptrdiff_t first = t->first, last = t->last, slot = t->slot - first;
    ptrdiff_t j = first + t->head;
#define COLUMNS(J, N)                                                                                                              \
    compute_columns(x, dy, weight, &c, g, at, cols, J, N, kind, terms, slot + (J), t->ahead, pitch,                                \
                    dx ? place(dx, (J) - first, kind.format) : 0)
    for (ptrdiff_t k = first; k < j; k += W)
        COLUMNS(k, at_most(j - k));
    for (; j + W <= last; j += W)
        COLUMNS(j, W);
    if (j < last) COLUMNS(j, (int)(last - j));
#undef COLUMNS
}

/* n elements, less than a line */
ALWAYS void copy_few(const void *from, ptrdiff_t n, void *to, const int format) {
    if (format != DTYPE_OF_REAL) {
        memcpy(to, from, (size_t)(n * size_in(format)));
        return;
    }
    for (ptrdiff_t j = 0; j < n; j += W)
        store_n((real *)to + j, load_n((const real *)from + j, at_most(n - j)), at_most(n - j));
}
/* n elements, the whole lines of them past the caches */
ALWAYS void stream_lines(const void *from, ptrdiff_t n, void *to, const int format) {
    const ptrdiff_t size = size_in(format), before = before_lines(to, n, size), end = end_of_lines(to, n, size);
    copy_few(from, before, to, format);
    for (ptrdiff_t j = before; j < end; j += LN_BYTES / size) {
        vec v; /* aligned to an element */
        memcpy(&v, element(from, j, format), sizeof v);
        stream(place(to, j, format), v);
    }
    copy_few(element(from, end, format), n - end, place(to, end, format), format);
}

/* The same for one or two rows of a strip that has fewer than STRIP, no weight, a masked output or an exact row. `usual`: all is there, in
 * the caches, and no row is exact; a single row took two and a half times as many instructions without this copy. */
NEVER void compute_any(const real *x, const real *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                       const tile *t, const rows_kind *kind, strip_terms *terms, ptrdiff_t pitch, real *dx) {
    const int usual = weight && terms && dx && !kind->any_exact && kind->writing == STORED;
#define ROWS(N, EXACT, WRITING)                                                                                                    \
    compute_rows(x, dy, weight, g, at, cols, t, (rows_kind){N, kind->follows, EXACT, WRITING, DTYPE_OF_REAL}, terms, pitch, dx)
    if (usual) {
        kind->rows == 1 ? ROWS(1, 0, STORED) : ROWS(2, 0, STORED);
    } else if (kind->any_exact) {
        kind->rows == 1 ? ROWS(1, 1, kind->writing) : ROWS(2, 1, kind->writing);
    } else {
        kind->rows == 1 ? ROWS(1, 0, kind->writing) : ROWS(2, 0, kind->writing);
    }
#undef ROWS
}

/* A tile of a strip of `rows` rows, at_once of them at once; any: by compute_any */
ALWAYS void compute_strip(const void *x, const void *dy, const real *weight, const group_gradient *g, int at, ptrdiff_t cols,
                          const tile *t, const int rows, const int at_once, const int any, const int any_exact, const int writing,
                          const int format, strip_terms *terms, void *dx) {
    real room[STRIP * SLOTS] __attribute__((aligned(64)));
    const int front = rows > at_once ? at_once : rows, back = rows - front;
    const int staged = writing == STAGED, whole = t->first == 0 && t->last == cols; /* whole: the rows are one run */
    const ptrdiff_t second = front * cols, pitch = staged && !whole ? SLOTS : cols;
    void *to = staged ? place(room, whole ? 0 : t->slot, format) : dx ? place(dx, t->first, format) : 0;
    const rows_kind begins = {front, 0, any_exact, writing, format}, follows = {back, 1, any_exact, writing, format};
    void *then = to ? place(to, front * pitch, format) : 0;
    const void *x_then = element(x, second, format), *dy_then = element(dy, second, format);
    if (any) {
        compute_any(x, dy, weight, g, at, cols, t, &begins, terms, pitch, to);
        if (back) compute_any(x_then, dy_then, weight, g, at + front, cols, t, &follows, terms, pitch, then);
    } else {
        compute_rows(x, dy, weight, g, at, cols, t, begins, terms, pitch, to);
        if (back) compute_rows(x_then, dy_then, weight, g, at + front, cols, t, follows, terms, pitch, then);
    }
    if (staged && whole) {
        stream_lines(to, rows * cols, dx, format);
    } else if (staged) {
        for (int r = 0; r < rows; ++r)
            stream_lines(element(to, r * SLOTS, format), t->last - t->first, place(dx, r * cols + t->first, format), format);
    }
}

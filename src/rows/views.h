/* views.h: rows of an array of any strides and format, gathered to lie side by side, and scattered back (ln_view in kernels.h). Knows
 * strides. Does not know what is computed. */

/* Where a row begins */
ALWAYS char *row_of(const ln_view *a, ptrdiff_t row) {
    char *p = a->data;
    for (int k = a->row_axes - 1; k > 0; --k) {
        p += row % a->row_lengths[k] * a->row_strides[k];
        row /= a->row_lengths[k];
    }
    return p + row * a->row_strides[0];
}

/* Rows from `row` on that begin in the same place: an array that is broadcast along the fastest axes of the rows */
ALWAYS ptrdiff_t rows_alike(const ln_view *a, ptrdiff_t row) {
    ptrdiff_t alike = 1;
    for (int k = a->row_axes - 1; k >= 0 && a->row_strides[k] == 0; --k)
        alike *= a->row_lengths[k];
    return alike - row % alike;
}

/* A row's elements lie side by side and are reals: it need not be gathered; and so do the rows */
ALWAYS int is_direct(const ln_view *a) { return ln_is_contiguous(a) && a->dtype == DTYPE_OF_REAL; }
ALWAYS int are_side_by_side(const ln_view *a, ptrdiff_t cols) {
    return ln_is_contiguous(a) && a->row_axes == 1 && a->row_strides[0] == cols * a->itemsize;
}
ALWAYS int are_direct(const ln_view *a, ptrdiff_t cols) { return a->dtype == DTYPE_OF_REAL && are_side_by_side(a, cols); }

/* Whether two views begin in the same place: an output that is an input is not streamed */
ALWAYS int is_same(const ln_view *a, const ln_view *b) { return a->data == b->data; }

/* From one run of columns along the fastest axis to the next: *p, and whether there is one; index: 0 for each axis at first */
ALWAYS int next_run(const ln_view *a, ptrdiff_t *index, char **p) {
    for (int k = a->col_axes - 2; k >= 0; --k) {
        *p += a->col_strides[k];
        if (++index[k] < a->col_lengths[k]) return 1;
        *p -= a->col_lengths[k] * a->col_strides[k];
        index[k] = 0;
    }
    return 0;
}

/* One row's columns, from and to p */
NEVER void gather_row(const ln_view *a, char *p, real *to) {
    const ptrdiff_t n = a->col_lengths[a->col_axes - 1], stride = a->col_strides[a->col_axes - 1];
    ptrdiff_t index[LN_AXES] = {0};
    do {
        read_run(p, stride, a->dtype, n, 0, to);
        to += n;
    } while (next_run(a, index, &p));
}
NEVER void scatter_row(const ln_view *a, const real *from, char *p) {
    const ptrdiff_t n = a->col_lengths[a->col_axes - 1], stride = a->col_strides[a->col_axes - 1];
    ptrdiff_t index[LN_AXES] = {0};
    do {
        write_run(from, n, a->dtype, p, stride, 0);
        from += n;
    } while (next_run(a, index, &p));
}

/* A row of bytes, where it lies or gathered to `room` */
ALWAYS const uint8_t *bytes_of_row(const ln_view *a, ptrdiff_t row, uint8_t *room) {
    char *p = row_of(a, row);
    const ptrdiff_t n = a->col_lengths[a->col_axes - 1], stride = a->col_strides[a->col_axes - 1];
    if (ln_is_contiguous(a)) return (const uint8_t *)p;
    ptrdiff_t index[LN_AXES] = {0};
    uint8_t *to = room;
    do {
        for (ptrdiff_t j = 0; j < n; ++j)
            *to++ = *(const uint8_t *)(p + j * stride);
    } while (next_run(a, index, &p));
    return room;
}

/* Rows that run across: TURN columns of up to TURNED_ROWS rows at once are turned, through the first-level cache. */
enum { TURN = 16, TURNED_ROWS = 64 };

/* TURN columns of up to TURNED_ROWS rows, each column side by side */
typedef struct {
    real column[TURN][TURNED_ROWS];
} turned;

/* The next of a view's columns, and where it begins */
typedef struct {
    char *run;
    ptrdiff_t at, index[LN_AXES];
} column_walk;

ALWAYS char *next_column(const ln_view *a, column_walk *walk) {
    const int inner = a->col_axes - 1;
    if (walk->at == a->col_lengths[inner]) {
        walk->at = 0;
        next_run(a, walk->index, &walk->run);
    }
    return walk->run + walk->at++ * a->col_strides[inner];
}

/* `count` rows (at most TURNED_ROWS) that lie side by side from p on; columns are `cols` apart in `to` and `from` */
NEVER void gather_across(const ln_view *a, char *p, int count, ptrdiff_t cols, real *to) {
    column_walk walk = {.run = p};
    turned room;
    for (ptrdiff_t j = 0; j < cols; j += TURN) {
        const int n = (int)(cols - j < TURN ? cols - j : TURN);
        for (int k = 0; k < n; ++k)
            read_run(next_column(a, &walk), a->itemsize, a->dtype, count, 0, room.column[k]);
        turn_columns(room.column[0], TURNED_ROWS, n, count, to + j, cols);
    }
}
NEVER void scatter_across(const ln_view *a, const real *from, int count, ptrdiff_t cols, char *p) {
    column_walk walk = {.run = p};
    turned room;
    for (ptrdiff_t j = 0; j < cols; j += TURN) {
        const int n = (int)(cols - j < TURN ? cols - j : TURN);
        turn_rows(from + j, cols, count, n, room.column[0], TURNED_ROWS);
        for (int k = 0; k < n; ++k)
            write_run(room.column[k], count, a->dtype, next_column(a, &walk), a->itemsize, 0);
    }
}

/* Of `left` rows from `row` on, those that lie side by side */
ALWAYS ptrdiff_t rows_of_run(const ln_view *a, ptrdiff_t row, ptrdiff_t left) {
    const ptrdiff_t length = a->row_lengths[a->row_axes - 1], run = length - row % length;
    return run < left ? run : left;
}
/* and are taken across at once */
ALWAYS int count_across(const ln_view *a, ptrdiff_t row, ptrdiff_t left) {
    const ptrdiff_t run = rows_of_run(a, row, left);
    return (int)(run < TURNED_ROWS ? run : TURNED_ROWS);
}

/* Rows first … last − 1 of an array, where they lie or gathered to `room` */
ALWAYS const real *rows_of(const ln_view *a, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int far, real *room) {
    if (are_direct(a, cols)) return (const real *)row_of(a, first);
    if (are_side_by_side(a, cols)) {
        const ptrdiff_t n = (last - first) * cols; /* beyond the caches as much, which is next, is on its way meanwhile */
        read_run(row_of(a, first), a->itemsize, a->dtype, n, far ? n * a->itemsize : 0, room);
        return room;
    }
    const int across = ln_runs_across(a);
    for (ptrdiff_t row = first, count = 1; row < last; row += count) {
        if (across)
            gather_across(a, row_of(a, row), (int)(count = count_across(a, row, last - row)), cols, room + (row - first) * cols);
        else
            gather_row(a, row_of(a, row), room + (row - first) * cols);
    }
    return room;
}

/* Where they are to be computed: where they are to lie, or in `room`, to be scattered */
ALWAYS real *place_of(const ln_view *a, ptrdiff_t first, ptrdiff_t cols, real *room) {
    return are_direct(a, cols) ? (real *)row_of(a, first) : room;
}
ALWAYS void scatter_rows(const ln_view *a, const real *rows, ptrdiff_t first, ptrdiff_t last, ptrdiff_t cols, int streams) {
    if (are_side_by_side(a, cols)) {
        write_run(rows, (last - first) * cols, a->dtype, row_of(a, first), a->itemsize, streams);
        return;
    }
    const int across = ln_runs_across(a);
    for (ptrdiff_t row = first, count = 1; row < last; row += count) {
        if (across)
            scatter_across(a, rows + (row - first) * cols, (int)(count = count_across(a, row, last - row)), cols, row_of(a, row));
        else
            scatter_row(a, rows + (row - first) * cols, row_of(a, row));
    }
}

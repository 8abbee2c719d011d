/* across.h: tiles of rows that lie side by side across their columns: read from there, column after column, and written back. Knows
 * strides. Does not know what is computed.
 *
 * A tile is some bands, a band the rows of one cache line: column after column, the rows side by side. Longer runs of a column than a
 * line, because a column is in a page of its own, and its first and last lines are another tile's too. */

enum { BAND = LN_LINE_BYTES / sizeof(real), BAND_VECTORS = BAND / W, MOST_BANDS = 64 / BAND };
/* Columns between the one that is read and the one that is fetched, where arrays are far and columns so many bytes apart that the
 * processor does not see what comes next (beyond the caches half the time; where it does, a sixth longer) */
enum { COLUMNS_AHEAD = 8, FAR_APART = 1024 };
/* Columns of rows that go across, at most: a band takes half of a second-level cache. */
enum { MOST_ACROSS = 8192 };

/* Rows of a tile, whole bands if there is more than one, out of so many in the room; never 0 */
ALWAYS int tile_rows(ptrdiff_t rows) {
    return rows >= MOST_BANDS * BAND ? MOST_BANDS * BAND : rows > BAND ? (int)(rows / BAND * BAND) : BAND;
}

/* A view's columns of up to a tile's rows that lie side by side in it, and those rows' place in the tile */
typedef struct {
    char *p;
    ptrdiff_t stride;
    int dtype, itemsize, at, rows;
} tile_piece;

ALWAYS tile_piece piece_of(const ln_view *a, ptrdiff_t row, int at, int rows) {
    return (tile_piece){row_of(a, row + at), a->col_strides[0], a->dtype, a->itemsize, at, count_across(a, row + at, rows - at)};
}

/* The lines of `size` bytes, into the first-level cache; written: to be */
ALWAYS void fetch_run(const char *p, ptrdiff_t size, const int written) {
    for (ptrdiff_t k = 0; k < size + LN_LINE_BYTES - 1; k += LN_LINE_BYTES) {
        const char *line = p + (k < size ? k : size - 1);
        written ? __builtin_prefetch(line, 1, 3) : __builtin_prefetch(line, 0, 3);
    }
}

/* n rows of a column, from row r of a tile's on */
ALWAYS void move_few(const tile_piece *piece, char *p, int n, const int back, real *tile) {
    real *in_array = (real *)p;
    if (piece->dtype == DTYPE_OF_REAL)
        back ? copy_reals(tile, n, in_array) : copy_reals(in_array, n, tile);
    else if (back)
        write_run(tile, n, piece->dtype, p, piece->itemsize, 0);
    else
        read_run(p, piece->itemsize, piece->dtype, n, 0, tile);
}

/* A piece's columns, from the array to the tile or back: what it has of its first band, whole bands, what it has of its last. streams:
 * back past the caches, where whole bands are whole lines */
ALWAYS void move_piece(const tile_piece *piece, ptrdiff_t cols, int far, const int back, int streams, real *tile) {
    const int first = piece->at / BAND, before = piece->at % BAND, left = before ? BAND - before : 0;
    const int head = left < piece->rows ? left : piece->rows, whole = (piece->rows - head) / BAND;
    const int tail = piece->rows - head - whole * BAND, itemsize = piece->itemsize;
    const ptrdiff_t size = (ptrdiff_t)piece->rows * itemsize;
    const int fetches = far && !streams && (piece->stride > FAR_APART || piece->stride < -FAR_APART);
    for (ptrdiff_t j = 0; j < cols; ++j) {
        char *p = piece->p + j * piece->stride;
        real *q = tile + (first * cols + j) * BAND;
        if (fetches && j + COLUMNS_AHEAD < cols) fetch_run(p + COLUMNS_AHEAD * piece->stride, size, back);
        if (head) {
            move_few(piece, p, head, back, q + before);
            p += head * itemsize;
            q += cols * BAND;
        }
        for (int k = 0; k < whole; ++k, p += BAND * itemsize, q += cols * BAND) {
            if (piece->dtype != DTYPE_OF_REAL)
                move_few(piece, p, BAND, back, q);
            else if (streams)
                EACH(i, BAND_VECTORS) stream((real *)p + i * W, load(q + i * W));
            else
                EACH(i, BAND_VECTORS) back ? store((real *)p + i * W, load(q + i * W)) : store(q + i * W, load((real *)p + i * W));
        }
        if (tail) move_few(piece, p, tail, back, q);
    }
}

/* `rows` rows of a view from `row` on, to a tile. Rows of its last band that are not there: 0 */
NEVER void read_tile(const ln_view *a, ptrdiff_t row, int rows, ptrdiff_t cols, int far, real *tile) {
    if (rows % BAND) memset(tile + rows / BAND * cols * BAND, 0, (size_t)cols * BAND * sizeof *tile);
    for (int at = 0; at < rows;) {
        const tile_piece piece = piece_of(a, row, at, rows);
        move_piece(&piece, cols, far, 0, 0, tile);
        at += piece.rows;
    }
}

/* Rows before the first whose columns all begin a line of the array; 0 where they do not lie alike */
ALWAYS int rows_before_lines(const ln_view *a, ptrdiff_t row) {
    const uintptr_t off = (uintptr_t)row_of(a, row) % LN_LINE_BYTES;
    return a->dtype == DTYPE_OF_REAL && a->col_strides[0] % LN_LINE_BYTES == 0 && off % sizeof(real) == 0 && off
               ? (int)((LN_LINE_BYTES - off) / sizeof(real))
               : 0;
}

/* and back; far: LN_IN_MEMORY: past the caches, as far as that goes in whole lines */
NEVER void write_tile(const ln_view *a, ptrdiff_t row, int rows, ptrdiff_t cols, int far, real *tile) {
    for (int at = 0; at < rows;) {
        const tile_piece piece = piece_of(a, row, at, rows);
        const int streams = far == LN_IN_MEMORY && a->dtype == DTYPE_OF_REAL && piece.stride % LN_LINE_BYTES == 0 &&
                            at % BAND == 0 && (uintptr_t)piece.p % LN_LINE_BYTES == 0;
        move_piece(&piece, cols, far, 1, streams, tile);
        at += piece.rows;
    }
}

/* A band's rows, its columns `pitch` apart, turned to lie one after the other, and back */
ALWAYS void turn_band(const real *band, ptrdiff_t pitch, int rows, ptrdiff_t cols, real *to) {
    for (ptrdiff_t j = 0; j < cols; j += TURN)
        turn_columns(band + j * pitch, pitch, (int)(cols - j < TURN ? cols - j : TURN), rows, to + j, cols);
}
ALWAYS void turn_back(const real *from, int rows, ptrdiff_t cols, real *band, ptrdiff_t pitch) {
    for (ptrdiff_t j = 0; j < cols; j += TURN)
        turn_rows(from + j, cols, rows, (int)(cols - j < TURN ? cols - j : TURN), band + j * pitch, pitch);
}

/* dx of a band's rows the usual way, in place of x, and their terms into the block's sums. room: (2, BAND, cols) */
NEVER void differentiate_turned(real *x, const real *dy, const real *weight, const double *mean, const double *rstd, int rows,
                                ptrdiff_t cols, int centred, double *sums, real *room) {
    real *x_rows = room, *dy_rows = room + BAND * cols;
    turn_band(x, BAND, rows, cols, x_rows);
    turn_band(dy, BAND, rows, cols, dy_rows);
    (centred ? backward_body : backward_body_rms)(x_rows, dy_rows, weight, mean, rstd, 0, rows, cols, LN_NEAR, 0, x_rows, sums);
    turn_back(x_rows, rows, cols, x, BAND);
}

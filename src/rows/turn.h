/* turn.h: rows become columns, and columns rows, square by square. Knows registers. */

/* A register of a square: one lane of 16 bytes or two, of LANE reals each */
#if LN_BYTES >= 32
#define LANES 2
#else
#define LANES 1
#endif
#define LANE (16 * W / LN_BYTES)
typedef real turn_reals __attribute__((vector_size(16 * LANES)));
#if LANE == 4
typedef int32_t turn_places __attribute__((vector_size(16 * LANES)));
#else
typedef int64_t turn_places __attribute__((vector_size(16 * LANES)));
#endif
typedef turn_reals turn_at __attribute__((aligned(sizeof(real)), may_alias));

/* Each lane's first halves, one real of a, one of b and so on; its second halves */
#if LANE == 4 && LANES == 2
#define FIRST(a, b) DEAL_OF(turn_places, a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define SECOND(a, b) DEAL_OF(turn_places, a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#elif LANE == 4
#define FIRST(a, b) DEAL_OF(turn_places, a, b, 0, 4, 1, 5)
#define SECOND(a, b) DEAL_OF(turn_places, a, b, 2, 6, 3, 7)
#elif LANES == 2
#define FIRST(a, b) DEAL_OF(turn_places, a, b, 0, 4, 2, 6)
#define SECOND(a, b) DEAL_OF(turn_places, a, b, 1, 5, 3, 7)
#else
#define FIRST(a, b) DEAL_OF(turn_places, a, b, 0, 2)
#define SECOND(a, b) DEAL_OF(turn_places, a, b, 1, 3)
#endif

/* A lane each from rows k and k + LANE of those at p, 0 for rows that are not there */
#if LANES == 2
ALWAYS turn_reals load_lanes(const real *p, ptrdiff_t pitch, int k, int rows) {
    __m256i v = _mm256_setzero_si256();
    if (k < rows) v = _mm256_castsi128_si256(_mm_loadu_si128((const void *)(p + k * pitch)));
    if (k + LANE < rows) v = _mm256_inserti128_si256(v, _mm_loadu_si128((const void *)(p + (k + LANE) * pitch)), 1);
    return (turn_reals)v;
}
#else
ALWAYS turn_reals load_lanes(const real *p, ptrdiff_t pitch, int k, int rows) {
    turn_reals v = {0};
    if (k < rows) v = *(const turn_at *)(p + k * pitch);
    return v;
}
#endif

/* to[j][i] = from[i][j] for the TURNED elements from i and j on; pitches in elements. rows, columns: how many are there; others are not
 * read, and not written. */
enum { TURNED = LANES * LANE };
ALWAYS void turn_square(const real *from, ptrdiff_t pitch, int rows, real *to, ptrdiff_t to_pitch, int columns) {
    EACH(side, LANES) {
        turn_reals v[4], t[4];
        EACH(k, LANE) v[k] = load_lanes(from + side * LANE, pitch, k, rows);
        EACH(k, LANE / 2) {
            t[2 * k] = FIRST(v[k], v[k + LANE / 2]);
            t[2 * k + 1] = SECOND(v[k], v[k + LANE / 2]);
        }
        if (LANE == 4) {
            EACH(k, 2) {
                v[2 * k] = FIRST(t[k], t[k + 2]);
                v[2 * k + 1] = SECOND(t[k], t[k + 2]);
            }
        }
        EACH(k, LANE) if (side * LANE + k < columns) * (turn_at *)(to + (side * LANE + k) * to_pitch) = LANE == 4 ? v[k] : t[k];
    }
}
#undef FIRST
#undef SECOND

/* to[j][i] = from[i][j] for i < rows, j < width: columns to rows. Whole registers of `from` are read. */
ALWAYS void turn_columns(const real *from, ptrdiff_t pitch, int rows, int width, real *to, ptrdiff_t to_pitch) {
    const int whole = rows / TURNED * TURNED;
    for (int j = 0; j < width; j += TURNED) {
        const int columns = width - j < TURNED ? width - j : TURNED;
        for (int i = 0; i < whole; i += TURNED)
            turn_square(from + i * pitch + j, pitch, TURNED, to + j * to_pitch + i, to_pitch, columns);
        for (int i = whole; i < rows; ++i)
            for (int k = j; k < j + columns; ++k)
                to[k * to_pitch + i] = from[i * pitch + k];
    }
}

/* The same, rows to columns. Whole registers of `to` are written. */
ALWAYS void turn_rows(const real *from, ptrdiff_t pitch, int rows, int width, real *to, ptrdiff_t to_pitch) {
    const int wide = width / TURNED * TURNED;
    for (int i = 0; i < rows; i += TURNED) {
        const int there = rows - i < TURNED ? rows - i : TURNED;
        for (int j = 0; j < wide; j += TURNED)
            turn_square(from + i * pitch + j, pitch, there, to + j * to_pitch + i, to_pitch, TURNED);
        for (int k = i; k < i + there; ++k)
            for (int j = wide; j < width; ++j)
                to[j * to_pitch + k] = from[k * pitch + j];
    }
}

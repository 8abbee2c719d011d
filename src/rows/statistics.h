/* statistics.h: mean and rstd of a group of rows. Knows sums and their errors. Does not know weights or gradients.
 *
 * A row goes to the first of three ways that is exact enough for it; which one depends on the row alone.
 *   raw       float32 only. Σ x and Σ x² in float64: every square is exact, so the only errors are those of adding, below
 *             2^-44 of Σ x². Good while mean² ≤ 2^18 · (var + eps): rstd is then off by less than 2^-27.
 *   centred   Σ (x − pivot) and Σ (x − pivot)² about a pivot near the mean (float32: the raw mean; float64: that of a sample); float64
 *             sums, a tree of four and TwoSum, rstd in double-double. A pivot further off than half a σ is moved, once. Good for
 *             every offset.
 *   exact     the row scaled by a power of two (exact.h): what overflows, underflows or is not finite. */

/* Rows finished together: their lanes, divisions and roots share one latency. */
#define GROUP 8
/* Elements summed by lane before the lanes are folded into the row's sum: bounds a lane's chain (float32, 4096 / 16). */
#define CHUNK 4096
/* Bytes ahead of the sums that are fetched into the second-level cache: rows taken side by side, and the output pass between
 * groups, break the processor's own streams (beyond the caches a quarter of the time, within them nothing). */
#define AHEAD 8192
ALWAYS void fetch(const void *p) { __builtin_prefetch(p, 0, 2); }
ALWAYS void fetch_ahead(const void *p) { fetch((const char *)p + AHEAD); }

/* Elements of a row summed as one tree of four vectors of eight lanes */
#define TREE 32

/* A row's statistics. xhat = ((x · 2^power − hi) − lo) · factor, power 0 but for scaled rows. */
typedef struct {
    double hi, lo, factor;
    double mean, rstd; /* what the caller gets */
    int power;
    int exact; /* float64 arithmetic with that power, row by row: exact.h */
} row_stats;

/* Σ (x − pivot) and Σ (x − pivot)² of a group: eight lanes a row, each an unevaluated pair */
typedef struct {
    vd sum[GROUP][REGS], sum_error[GROUP][REGS], square[GROUP][REGS], square_error[GROUP][REGS];
} centred_sums;

/* How many of the WD elements from `at` on lie before `end` */
ALWAYS int left_of(ptrdiff_t at, ptrdiff_t end) {
    const ptrdiff_t n = end - at;
    return n < 0 ? 0 : n > WD ? WD : (int)n;
}

/* Σ (x − pivot), Σ (x − pivot)² of row r: element j in lane j mod 8 */
ALWAYS void center_row(const real *x, ptrdiff_t cols, double pivot, int r, centred_sums *out) {
    const vd p = splat_d(pivot);
    vd sum[REGS], sum_error[REGS], square[REGS], square_error[REGS];
    EACH(i, REGS) sum[i] = sum_error[i] = square[i] = square_error[i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += TREE) {
        EACH(k, TREE * (int)sizeof(real) / 64) fetch_ahead(x + j + k * (64 / (int)sizeof(real)));
        EACH(i, REGS) {
            vd d[4];
            if (j + TREE <= cols) {
                EACH(k, 4) d[k] = minus_d(load_double(x + j + 8 * k + i * WD), p);
            } else {
                EACH(k, 4) {
                    const ptrdiff_t at = j + 8 * k + i * WD;
                    const int n = left_of(at, cols);
                    d[k] = n == 0 ? (vd){0} : keep_part(load_part_double(x + at, n) - p, n);
                }
            }
            two_sum(&sum[i], &sum_error[i], (d[0] + d[1]) + (d[2] + d[3]));
            two_sum(&square[i], &square_error[i], plus_d(d[0] * d[0], d[1] * d[1]) + plus_d(d[2] * d[2], d[3] * d[3]));
        }
    }
    EACH(i, REGS) {
        out->sum[r][i] = sum[i];
        out->sum_error[r][i] = sum_error[i];
        out->square[r][i] = square[i];
        out->square_error[r][i] = square_error[i];
    }
}

/* mean = pivot + Σ (x − pivot) / D, var = (Σ (x − pivot)² − (Σ (x − pivot))² / D) / D, rstd = 1 / √(var + eps), each to
 * little more than one rounding, for the rows of a group (those of unused rows are computed and dropped) */
ALWAYS void finish_centred(centred_sums *rows, const double *pivot, double cols, double eps, row_stats *stats) {
    vd sum[REGS], sum_error[REGS], square[REGS], square_error[REGS];
    sum_lanes(rows->sum, rows->sum_error, 1, sum, sum_error);
    sum_lanes(rows->square, rows->square_error, 1, square, square_error);
    for (int i = 0; i < REGS; ++i) {
        const vd n = splat_d(cols), hi = load_d(pivot + i * WD);
        const vd total = sum[i] + sum_error[i], lo = total / n;

        /* var + eps as the pair v + v_error */
        vd var_n = square[i], var_n_error = square_error[i];
        two_sum(&var_n, &var_n_error, -(total * lo));
        vd v = var_n / n;
        const vd back = v * n;
        vd v_error = (((var_n - back) - product_error(v, n, back)) + var_n_error) / n;
        two_sum(&v, &v_error, splat_d(eps));

        /* one Newton step in double-double: rstd = r + r · (1 − v · r²) / 2 */
        const vd r = 1.0 / root(v);
        const vd rr = r * r, rr_error = product_error(r, r, rr);
        const vd vrr = v * rr, vrr_error = product_error(v, rr, vrr);
        const vd miss = ((1.0 - vrr) - vrr_error) - (v * rr_error + v_error * rr);
        const vd rstd = r + r * (miss * 0.5);

        /* the mean as one number and what it lacks */
        vd mean = hi, rest = (vd){0};
        two_sum(&mean, &rest, lo);

        /* the pivot lies within half a σ, and nothing left its range (NaN fails the test) */
        const vm good = (lo * lo * 4 <= v) & (v >= 1 / (RSTD_MAX * RSTD_MAX)) & (v <= RSTD_MAX * RSTD_MAX);
        EACH(k, WD) {
            row_stats *s = &stats[i * WD + k];
            s->hi = s->mean = mean[k];
            s->lo = rest[k];
            s->factor = s->rstd = rstd[k];
            s->power = 0;
            s->exact = !good[k];
        }
    }
}

#if REAL_IS_F32

/* Rows whose sums run side by side: enough chains to hide the latency of adding, no more than there are registers for. */
#if LN_BYTES == 64 /* 32 registers */
#define ABREAST 2
#else
#define ABREAST 1
#endif

/* Σ x and Σ x² of `rows` rows in float64, a chunk's lanes: element j in lane j mod 16, then lane i + lane i + 8 */
ALWAYS void sum_chunk(const float *x, ptrdiff_t pitch, ptrdiff_t cols, const int rows, vd (*sum)[REGS], vd (*square)[REGS]) {
    vd s[ABREAST][2 * REGS], q[ABREAST][2 * REGS];
    EACH(r, rows) EACH(i, 2 * REGS) s[r][i] = q[r][i] = (vd){0};
    ptrdiff_t j = 0;
    for (; j + 16 <= cols; j += 16) {
        EACH(r, rows) fetch_ahead(x + r * pitch + j);
        EACH(r, rows) EACH(i, 2 * REGS) {
            const vd d = load_wide(x + r * pitch + j + i * WD);
            s[r][i] = i % 2 ? plus_d(d, s[r][i]) : s[r][i] + d;
            q[r][i] = add_exact_product(d, d, q[r][i]);
        }
    }
    if (j < cols) {
        EACH(r, rows) EACH(i, 2 * REGS) {
            const int n = left_of(j + i * WD, cols);
            if (n > 0) {
                const vd d = load_part_wide(x + r * pitch + j + i * WD, n);
                s[r][i] += d;
                q[r][i] = add_exact_product(d, d, q[r][i]);
            }
        }
    }
    EACH(r, rows) EACH(i, REGS) {
        sum[r][i] = s[r][i] + s[r][i + REGS];
        square[r][i] = q[r][i] + q[r][i + REGS];
    }
}

/* Σ x and Σ x² of a group's rows, chunk after chunk; what stands for unused rows is finite */
ALWAYS void sum_rows(const float *x, int rows, ptrdiff_t cols, vd *sum, vd *square) {
    vd s[GROUP][REGS], q[GROUP][REGS];
    EACH(i, REGS) sum[i] = square[i] = (vd){0};
    for (int r = rows; r < GROUP; ++r)
        EACH(i, REGS) s[r][i] = q[r][i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += CHUNK) {
        const ptrdiff_t width = cols - j < CHUNK ? cols - j : CHUNK;
        int r = 0;
        for (; r + ABREAST <= rows; r += ABREAST)
            sum_chunk(x + r * cols + j, cols, width, ABREAST, s + r, q + r);
        for (; r < rows; ++r)
            sum_chunk(x + r * cols + j, cols, width, 1, s + r, q + r);
        vd part[REGS], part_square[REGS];
        sum_lanes(s, 0, 0, part, 0);
        sum_lanes(q, 0, 0, part_square, 0);
        EACH(i, REGS) {
            sum[i] += part[i];
            square[i] += part_square[i];
        }
    }
}

#else

/* A pivot for one row: the sum of SAMPLE of its elements, in eight lanes, eight neighbours at a time from end to end; of all where
 * there are no more. Returns how many. */
#define SAMPLE 64
ALWAYS double sample_row(const double *x, ptrdiff_t cols, vd *sum) {
    vd s[REGS];
    EACH(i, REGS) s[i] = (vd){0};
    if (cols > SAMPLE) {
        for (ptrdiff_t k = 0; k < 8; ++k)
            EACH(i, REGS) s[i] += load_d(x + (cols - 8) * k / 7 + i * WD);
    } else {
        ptrdiff_t j = 0;
        for (; j + 8 <= cols; j += 8)
            EACH(i, REGS) s[i] += load_d(x + j + i * WD);
        if (j < cols) EACH(i, REGS) s[i] += load_part_d(x + j + i * WD, left_of(j + i * WD, cols));
    }
    EACH(i, REGS) sum[i] = s[i];
    return cols > SAMPLE ? SAMPLE : (double)cols;
}

#endif

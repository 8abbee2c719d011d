/* statistics_f32.h: the raw way of float32, for a group of rows: sums of exact products in float64. What it cannot do is left to the
 * centred way. */

/* Elements summed by lane before the lanes are folded into the row's sum: bounds a lane's chain (4096 / 16). */
#define CHUNK 4096

/* Rows whose sums run side by side: enough chains to hide the latency of adding, no more than there are registers for. */
#if LN_BYTES == 64 /* 32 registers */
#define ABREAST 2
#else
#define ABREAST 1
#endif

/* Σ a and Σ a · x of `rows` rows, a = h = dy · weight, or x itself where there is no dy: a chunk's lanes, element j in lane j mod 16,
 * then lane i + lane i + 8 */
ALWAYS void sum_chunk(const float *x, const float *dy, const float *weight, ptrdiff_t pitch, ptrdiff_t cols, const int rows,
                      vd (*a_sum)[REGS], vd (*ax_sum)[REGS]) {
    vd s[ABREAST][2 * REGS], q[ABREAST][2 * REGS];
    EACH(r, rows) EACH(i, 2 * REGS) s[r][i] = q[r][i] = (vd){0};
    ptrdiff_t j = 0;
    for (; j + 16 <= cols; j += 16) {
        EACH(r, rows) {
            fetch_ahead(x + r * pitch + j);
            if (dy) fetch_ahead(dy + r * pitch + j);
        }
        EACH(r, rows) EACH(i, 2 * REGS) {
            const ptrdiff_t at = j + i * WD;
            const vd x_i = load_wide(x + r * pitch + at);
            const vd a = dy ? product(dy + r * pitch + at, weight ? weight + at : 0) : x_i;
            /* h comes from the multiplying ports already */
            s[r][i] = !dy && i % 2 ? plus_d(a, s[r][i]) : s[r][i] + a;
            q[r][i] = add_exact_product(a, x_i, q[r][i]);
        }
    }
    if (j < cols) {
        EACH(r, rows) EACH(i, 2 * REGS) {
            const ptrdiff_t at = j + i * WD;
            const int n = left_of(at, cols);
            if (n > 0) {
                const vd x_i = load_part_wide(x + r * pitch + at, n);
                const vd a = dy ? product_part(dy + r * pitch + at, weight ? weight + at : 0, n) : x_i;
                s[r][i] += a;
                q[r][i] = add_exact_product(a, x_i, q[r][i]);
            }
        }
    }
    EACH(r, rows) EACH(i, REGS) {
        a_sum[r][i] = s[r][i] + s[r][i + REGS];
        ax_sum[r][i] = q[r][i] + q[r][i + REGS];
    }
}

/* Σ a and Σ a · x of a group's rows, chunk after chunk; what stands for unused rows is 0 */
ALWAYS void sum_rows(const float *x, const float *dy, const float *weight, int rows, ptrdiff_t cols, vd *a_sum, vd *ax_sum) {
    vd s[GROUP][REGS], q[GROUP][REGS];
    EACH(i, REGS) a_sum[i] = ax_sum[i] = (vd){0};
    for (int r = rows; r < GROUP; ++r)
        EACH(i, REGS) s[r][i] = q[r][i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += CHUNK) {
        const ptrdiff_t width = cols - j < CHUNK ? cols - j : CHUNK;
        int r = 0;
        for (; r + ABREAST <= rows; r += ABREAST)
            sum_chunk(x + r * cols + j, dy ? dy + r * cols + j : 0, weight ? weight + j : 0, cols, width, ABREAST, s + r, q + r);
        for (; r < rows; ++r)
            sum_chunk(x + r * cols + j, dy ? dy + r * cols + j : 0, weight ? weight + j : 0, cols, width, 1, s + r, q + r);
        vd part[REGS], part_ax[REGS];
        sum_lanes(s, 0, 0, part, 0);
        sum_lanes(q, 0, 0, part_ax, 0);
        EACH(i, REGS) {
            a_sum[i] += part[i];
            ax_sum[i] += part_ax[i];
        }
    }
}

/* Statistics from Σ x and Σ x² where they are good for it; returns whether any row wants the centred way, about its pivot. */
ALWAYS int first_statistics(const float *x, int rows, ptrdiff_t cols, double eps, double *pivot, int64_t *wanted,
                            row_stats *stats) {
    vd sum[REGS], square[REGS];
    const vd n = splat_d((double)cols);
    int64_t any = 0;
    sum_rows(x, 0, 0, rows, cols, sum, square);
    EACH(i, REGS) {
        const vd mean = sum[i] / n;
        const vd v = (square[i] / n - mean * mean) + eps;
        const vd rstd = 1.0 / root(v);
        const vm good = (mean * mean <= 0x1p18 * v) & (v >= 1 / (RSTD_MAX * RSTD_MAX)) & (v <= RSTD_MAX * RSTD_MAX);
        store_d(pivot + i * WD, mean);
        store_m(wanted + i * WD, ~good);
        EACH(k, WD) {
            row_stats *s = &stats[i * WD + k];
            s->hi = s->mean = mean[k];
            s->lo = 0;
            s->factor = s->rstd = rstd[k];
            s->power = s->exact = 0;
        }
    }
    for (int r = 0; r < rows; ++r)
        any |= wanted[r];
    return any != 0;
}

/* The mean as two float32. They lose nothing that counts (2^-27 of σ), or the row is marked for the exact way. */
ALWAYS void split_mean(row_stats *s, float *hi, float *lo) {
    *hi = (float)s->hi;
    const double rest = (s->hi - *hi) + s->lo;
    *lo = (float)rest;
    if (!(__builtin_fabs(rest - *lo) * s->rstd <= 0x1p-27)) s->exact = 1;
}

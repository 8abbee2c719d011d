/* statistics_f32.h: the raw way of float32, for a group of rows: sums of exact products in float64. What it cannot do is left to the
 * centred way. */

/* Σ x, which is 0 where not centred, and Σ x² of `rows` rows: a chunk's lanes, element j in lane j mod 16, then lane i + lane i + 8 */
ALWAYS void sum_chunk(const void *x, const int format, ptrdiff_t pitch, ptrdiff_t cols, const int rows, int far, const int centred,
                      vd (*sum)[REGS], vd (*square)[REGS]) {
    enum { SIXTEEN = 16 };
    const ptrdiff_t line = LINE / size_in(format);
    vd s[ABREAST][2 * REGS], q[ABREAST][2 * REGS];
    EACH(r, rows) EACH(i, 2 * REGS) s[r][i] = q[r][i] = (vd){0};
#define ADD_SIXTEEN(AT, N)                                                                                                         \
    EACH(r, rows) {                                                                                                                \
        vd x_16[2 * REGS];                                                                                                         \
        read_sixteen(element(x, r *pitch + (AT), format), N, format, x_16);                                                        \
        EACH(i, 2 * REGS) {                                                                                                        \
            if (centred) s[r][i] = i % 2 ? plus_d(x_16[i], s[r][i]) : s[r][i] + x_16[i];                                           \
            q[r][i] = add_exact_product(x_16[i], x_16[i], q[r][i]);                                                                \
        }                                                                                                                          \
    }
    ptrdiff_t j = 0;
    for (; j <= cols - line; j += line) {
        if (far) EACH(r, rows) fetch_ahead(element(x, r * pitch + j, format), line, format);
        EACH(k, line / SIXTEEN) ADD_SIXTEEN(j + k * SIXTEEN, SIXTEEN)
    }
    if (line > SIXTEEN && j <= cols - SIXTEEN) {
        ADD_SIXTEEN(j, SIXTEEN)
        j += SIXTEEN;
    }
    if (j < cols) ADD_SIXTEEN(j, (int)(cols - j))
#undef ADD_SIXTEEN
    EACH(r, rows) EACH(i, REGS) {
        sum[r][i] = s[r][i] + s[r][i + REGS];
        square[r][i] = q[r][i] + q[r][i + REGS];
    }
}

/* Σ x and Σ x² of a group's rows, chunk after chunk; what stands for unused rows is 0 */
ALWAYS void sum_rows(const void *x, const int format, int rows, ptrdiff_t cols, int far, const int centred, vd *sum, vd *square) {
    vd s[GROUP][REGS], q[GROUP][REGS];
    EACH(i, REGS) sum[i] = square[i] = (vd){0};
    for (int r = rows; r < GROUP; ++r)
        EACH(i, REGS) s[r][i] = q[r][i] = (vd){0};
    for (ptrdiff_t j = 0; j < cols; j += CHUNK) {
        const ptrdiff_t width = cols - j < CHUNK ? cols - j : CHUNK;
        int r = 0;
        for (; r + ABREAST <= rows; r += ABREAST)
            sum_chunk(element(x, r * cols + j, format), format, cols, width, ABREAST, far, centred, s + r, q + r);
        for (; r < rows; ++r)
            sum_chunk(element(x, r * cols + j, format), format, cols, width, 1, far, centred, s + r, q + r);
        vd part[REGS];
        if (centred) {
            sum_lanes(s, part);
            EACH(i, REGS) sum[i] += part[i];
        }
        sum_lanes(q, part);
        EACH(i, REGS) square[i] += part[i];
    }
}

/* The centred way: float64 has bits to spare for sums by trees. Good for every row; none is plain (statistics_f64.h). */
#define PLAIN 0
ALWAYS double center_row(const float *x, ptrdiff_t cols, double pivot, double spread, int r, int far, const int centred,
                         const int may_be_plain, centred_sums *out) {
    (void)spread, (void)may_be_plain;
    return sum_trees(x, cols, pivot, r, far, centred, out);
}
ALWAYS void add_up(centred_sums *rows, ptrdiff_t cols, const int centred, vd *sum, vd *sum_error, vd *square, vd *square_error) {
    (void)cols;
    if (centred) sum_pairs(rows->sum, rows->sum_error, sum, sum_error);
    sum_pairs(rows->square, rows->square_error, square, square_error);
}

/* mean and rstd from Σ x and Σ x² of a register's rows. Returned: where those are good for it. */
ALWAYS vm finish_raw(vd sum, vd square, vd n, double eps, const int centred, vd *mean, vd *rstd) {
    *mean = centred ? sum / n : (vd){0};
    const vd square_of_mean = *mean * *mean, v = (square / n - square_of_mean) + eps;
    *rstd = 1.0 / root(v);
    return (square_of_mean <= 0x1p18 * v) & (v >= 1 / (RSTD_MAX * RSTD_MAX)) & (v <= RSTD_MAX * RSTD_MAX);
}

/* The mean as two float32. Returned: where they lose nothing that counts (2^-27 of σ). */
ALWAYS vm split_mean(vd mean, vd lo, vd rstd, vh *minus_hi, vh *rest) {
    const vh hi = narrow(mean);
    const vd left = (mean - widen(hi)) + lo;
    *minus_hi = -hi;
    *rest = narrow(left);
    return magnitude(left - widen(*rest)) * rstd <= 0x1p-27;
}

/* What either way has found for register i's rows, ready for standardize; the exact way, unscaled, where two float32 do not hold the mean */
#define ALL_ARE_CENTRED 0
ALWAYS void keep_stats(vd mean, vd hi, vd lo, vd rstd, int i, const int centred, group_stats *out) {
    vh minus_hi = {0}, rest = {0};
    vm split = ~(vm){0};
    if (centred) split = split_mean(hi, lo, rstd, &minus_hi, &rest);
    store_d(out->mean + i * WD, mean);
    store_d(out->rstd + i * WD, rstd);
    store_h(out->factor + i * WD, narrow(rstd));
    store_m(out->exact + i * WD, ~split);
    if (!centred) return;
    store_h(out->minus_hi + i * WD, minus_hi);
    store_h(out->rest + i * WD, rest);
    if (any_of(~split)) EACH(k, WD) out->scaled[i * WD + k] = (scaled_row){hi[k], lo[k], rstd[k], mean[k], rstd[k], 0};
}

/* Statistics from Σ x and Σ x² where they are good for it; returns whether any row wants the centred way, about its pivot. */
ALWAYS int first_statistics(const void *x, const int format, int rows, ptrdiff_t cols, double eps, int far, const int centred,
                            double *pivot, double *spread, int64_t *wanted, group_stats *stats) {
    (void)spread;
    vd sum[REGS], square[REGS];
    const vd n = splat_d((double)cols);
    int64_t any = 0;
    sum_rows(x, format, rows, cols, far, centred, sum, square);
    EACH(i, REGS) {
        vd mean, rstd;
        const vm good = finish_raw(sum[i], square[i], n, eps, centred, &mean, &rstd);
        store_d(pivot + i * WD, mean);
        store_m(wanted + i * WD, ~good);
        keep_stats(mean, mean, (vd){0}, rstd, i, centred, stats);
    }
    for (int r = 0; r < rows; ++r)
        any |= wanted[r];
    return any != 0;
}

/* xhat = ((x − hi) − lo) · rstd */
ALWAYS vec standardize(vec x, vec minus_hi, vec rest, vec rstd) { return ((x + minus_hi) - rest) * rstd; }

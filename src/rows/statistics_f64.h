/* statistics_f64.h: where float64's statistics begin: at the centred way, about the mean of a sample. */

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

/* A pivot for each row, all of which want the centred way. */
ALWAYS int first_statistics(const double *x, int rows, ptrdiff_t cols, double eps, int far, double *pivot, int64_t *wanted,
                            row_stats *stats) {
    vd lanes[GROUP][REGS], sum[REGS];
    double count = 1;
    (void)eps, (void)far;
    (void)stats;
    for (int r = 0; r < GROUP; ++r) {
        wanted[r] = r < rows ? -1 : 0;
        if (r < rows)
            count = sample_row(x + r * cols, cols, lanes[r]);
        else
            EACH(i, REGS) lanes[r][i] = (vd){0};
    }
    sum_lanes(lanes, 0, 0, sum, 0);
    EACH(i, REGS) store_d(pivot + i * WD, sum[i] / count);
    return 1;
}

/* The mean as two float64: as it is. */
ALWAYS void split_mean(row_stats *s, double *hi, double *lo) {
    *hi = s->hi;
    *lo = s->lo;
}

/* statistics_f64.h: float64's statistics: the centred way for all rows, about the mean of a sample, in sums that lose nothing; or, where
 * that mean is near 0, about 0: such a row is plain. No difference is rounded then, which leaves a rounding for the sums of two
 * neighbours, and half of the work.
 *
 * What y may be off by at most, in halves of an epsilon: x − hi 1, · rstd − rest 1, · weight + bias 1, rstd itself 1; and of the
 * statistics what x − pivot loses, 1.4 (in the mean and in the variance, where no row makes the most of both), and the squares, 0.5.
 * That is 5.9 of the 6 that are promised. A plain row, σ and |mean| ≤ PLAIN · σ: · rstd + rest 1, rest itself 0.25, the mean that it has
 * 0.25, · weight + bias 1, rstd itself 1; the sums of two lose 1.04 in the mean, with their squares 1.08 in the variance, and 0.29 of
 * the first there too: again 5.9. RMSNorm, whose squares are summed by trees: · rstd 1, · weight 1, rstd 1, and of the mean square
 * three roundings, which the root halves, 1.5: 4.5 of 6. */

/* The most |mean| · rstd of a plain row */
#define PLAIN 0.28125

/* Σ (x − pivot), Σ (x − pivot)² of row r, element j in lane j mod 8, chunk after chunk; plain: the pivot is 0, and two elements of a lane
 * that follow each other, and their squares, are added first. A chunk's sums start from what is greater than all that will be added to
 * them, and that is taken off at the end. Whether it was: squares only grow, and with them all else has a bound, √(n Σ (x − pivot)²) for
 * n elements in a lane. Returned is the Σ (x − pivot)² up to which that is so: one element may lie 45 · √n spreads off. A row with
 * elements further off is taken again with the spread that it turned out to have. What the errors lose when they are added up is below
 * n² · 2^-94 · spread² for each square. */
ALWAYS void add_tree(const double *x, ptrdiff_t left, double pivot, int far, const int plain, lane_pairs *s) {
    if (far) fetch_ahead(x, TREE, DTYPE_OF_REAL);
    EACH(i, REGS) {
        vd d[4];
        load_centred(x, i, left, pivot, 0, d); /* the compiler drops + −0 */
        for (int k = 0; k < 4; k += plain ? 2 : 1) {
            add_beneath(&s->sum[i], &s->sum_error[i], plain ? d[k] + d[k + 1] : d[k]);
            add_beneath(&s->square[i], &s->square_error[i], plain ? d[k] * d[k] + d[k + 1] * d[k + 1] : d[k] * d[k]);
        }
    }
}
ALWAYS void sum_chunk(const double *x, ptrdiff_t cols, double pivot, vd above, vd above_squares, int far, const int plain,
                      lane_pairs *s) {
    EACH(i, REGS) {
        s->sum[i] = above;
        s->square[i] = above_squares;
        s->sum_error[i] = s->square_error[i] = (vd){0};
    }
    ptrdiff_t j = 0;
    for (; j <= cols - TREE; j += TREE)
        add_tree(x + j, TREE, pivot, far, plain, s);
    if (j < cols) add_tree(x + j, cols - j, pivot, far, plain, s);
    EACH(i, REGS) {
        s->sum[i] = s->sum[i] - above;
        s->square[i] = s->square[i] - above_squares;
    }
}
/* Row r's chunks after the first, onto what there is */
ALWAYS void sum_chunks(const double *x, ptrdiff_t cols, double pivot, vd above, vd above_squares, int r, int far, const int plain,
                       centred_sums *out) {
    for (ptrdiff_t j = CHUNK; j < cols; j += CHUNK) {
        lane_pairs s;
        sum_chunk(x + j, cols - j < CHUNK ? cols - j : CHUNK, pivot, above, above_squares, far, plain, &s);
        EACH(i, REGS) {
            two_sum(&s.sum[i], &s.sum_error[i], out->sum[r][i]);
            two_sum(&s.square[i], &s.square_error[i], out->square[r][i]);
            s.sum_error[i] += out->sum_error[r][i];
            s.square_error[i] += out->square_error[r][i];
        }
        keep_lanes(&s, r, out);
    }
}
NEVER void sum_more(const double *x, ptrdiff_t cols, double pivot, vd above, vd above_squares, int r, int far, int plain,
                    centred_sums *out) {
    if (plain)
        sum_chunks(x, cols, 0, above, above_squares, r, far, 1, out);
    else
        sum_chunks(x, cols, pivot, above, above_squares, r, far, 0, out);
}
ALWAYS double sum_row(const double *x, ptrdiff_t cols, double pivot, double spread, int r, int far, const int plain,
                      centred_sums *out) {
    const double n = (double)(((cols < CHUNK ? cols : CHUNK) + 7) / 8), limit = 2048 * n * spread * spread;
    const vd above = splat_d(128 * n * spread), above_squares = splat_d(2 * limit);
    lane_pairs s;
    sum_chunk(x, cols < CHUNK ? cols : CHUNK, pivot, above, above_squares, far, plain, &s);
    keep_lanes(&s, r, out);
    if (cols > CHUNK) sum_more(x, cols, pivot, above, above_squares, r, far, plain, out);
    return limit;
}

ALWAYS double center_row(const double *x, ptrdiff_t cols, double pivot, double spread, int r, int far, const int centred,
                         const int may_be_plain, centred_sums *out) {
    if (!centred) return sum_trees(x, cols, 0, r, far, 0, out);
    if (may_be_plain && pivot == 0) return sum_row(x, cols, 0, spread, r, far, 1, out);
    return sum_row(x, cols, pivot, spread, r, far, 0, out);
}

/* The sums of the rows of a group. A chunk's are multiples of what was their last place when they started, and where they are right at all
 * (the limit) all lanes together are no greater than what they started from, √(8 n · limit): nothing is rounded. */
ALWAYS void add_up(centred_sums *rows, ptrdiff_t cols, const int centred, vd *sum, vd *sum_error, vd *square, vd *square_error) {
    if (centred && cols <= CHUNK) {
        sum_lanes(rows->sum, sum);
        sum_lanes(rows->sum_error, sum_error);
        sum_lanes(rows->square, square);
        sum_lanes(rows->square_error, square_error);
    } else {
        if (centred) sum_pairs(rows->sum, rows->sum_error, sum, sum_error);
        sum_pairs(rows->square, rows->square_error, square, square_error);
    }
}

/* A pivot for one row: the sum of SAMPLE of its elements, in eight lanes, eight neighbours at a time from end to end; of all where
 * there are no more. Returns how many. And for its spread, the distances of half of them from the first eight (of one far off among these
 * only its own lane hears), or from the first. */
#define SAMPLE 64
ALWAYS double sample_row(const double *x, ptrdiff_t cols, vd *sum, vd *distance) {
    vd s[REGS], d[REGS];
    EACH(i, REGS) s[i] = d[i] = (vd){0};
    if (cols > SAMPLE) {
        for (ptrdiff_t k = 0; k < 8; ++k)
            EACH(i, REGS) {
                const vd v = load_d(x + (cols - 8) * k / 7 + i * WD);
                s[i] += v;
                if (k % 2 == 0) d[i] += magnitude(v - load_d(x + i * WD));
            }
    } else {
        const vd first = splat_d(x[0]);
        ptrdiff_t j = 0;
        for (; j <= cols - 16; j += 16)
            EACH(i, REGS) {
                s[i] += load_d(x + j + i * WD);
                d[i] += magnitude(first - load_d(x + j + i * WD));
                s[i] += load_d(x + j + 8 + i * WD);
            }
        if (j <= cols - 8) {
            EACH(i, REGS) {
                s[i] += load_d(x + j + i * WD);
                d[i] += magnitude(first - load_d(x + j + i * WD));
            }
            j += 8;
        }
        if (j < cols) EACH(i, REGS) {
                const int n = left_of(j + i * WD, cols);
                const vd v = load_part_d(x + j + i * WD, n);
                s[i] += v;
                if (j % 16 == 0) d[i] += magnitude(keep_part(v - first, n));
            }
    }
    EACH(i, REGS) {
        sum[i] = s[i];
        distance[i] = d[i];
    }
    return cols > SAMPLE ? SAMPLE : (double)cols;
}

/* A pivot and a spread for each row, all of which want the centred way; where not centred, it needs neither. The spread of a normal
 * distribution comes out as some 9 σ: what lies within a 32nd of it may well be a plain row. */
ALWAYS int first_statistics(const void *x_, const int format, int rows, ptrdiff_t cols, double eps, int far, const int centred,
                            double *pivot, double *spread, int64_t *wanted, group_stats *stats) {
    const double *x = x_;
    vd lanes[GROUP][REGS], distances[GROUP][REGS], sum[REGS], distance[REGS];
    double count = 1;
    (void)format, (void)eps, (void)far, (void)stats;
    for (int r = 0; r < GROUP; ++r)
        wanted[r] = r < rows ? -1 : 0;
    if (!centred) {
        for (int r = 0; r < GROUP; ++r)
            pivot[r] = spread[r] = 0;
        return 1;
    }
    for (int r = 0; r < GROUP; ++r) {
        if (r < rows)
            count = sample_row(x + r * cols, cols, lanes[r], distances[r]);
        else
            EACH(i, REGS) lanes[r][i] = distances[r][i] = (vd){0};
    }
    sum_lanes(lanes, sum);
    sum_lanes(distances, distance);
    EACH(i, REGS) {
        const vd middle = sum[i] / count, around = distance[i] * 0.25;
        store_d(pivot + i * WD, pick(magnitude(middle) * 32 <= around, (vd){0}, middle));
        store_d(spread + i * WD, around);
    }
    return 1;
}

/* What the centred way has found for register i's rows, ready for standardize */
#define ALL_ARE_CENTRED 1
ALWAYS void keep_stats(vd mean, vd hi, vd lo, vd rstd, int i, const int centred, group_stats *out) {
    store_d(out->mean + i * WD, mean);
    store_d(out->rstd + i * WD, rstd);
    store_d(out->factor + i * WD, rstd);
    store_m(out->exact + i * WD, (vm){0});
    if (!centred) return;
    store_d(out->minus_hi + i * WD, -hi);
    store_d(out->rest + i * WD, -(lo * rstd));
}

/* xhat = (x − hi) · rstd + rest */
ALWAYS vec standardize(vec x, vec minus_hi, vec rest, vec rstd) { return multiply_add(x + minus_hi, rstd, rest); }

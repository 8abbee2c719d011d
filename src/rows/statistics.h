/* statistics.h: mean and rstd of a group of rows. Knows sums and their errors. Does not know weights or gradients.
 *
 * A row goes to the first of three ways that is exact enough for it; which one depends on the row alone.
 *   raw       float32 only. Σ x and Σ x² in float64: every square is exact, so the only errors are those of adding, below
 *             2^-44 of Σ x². Good while mean² ≤ 2^18 · (var + eps): rstd is then off by less than 2^-27.
 *   centred   Σ (x − pivot) and Σ (x − pivot)² about the mean that the raw sum gave; float64 sums, a tree of four and TwoSum,
 *             rstd in double-double. Good for every offset.
 *   exact     the row scaled by a power of two (exact.h): what overflows, underflows or is not finite. */

/* Rows finished together: their divisions and roots share one latency. */
#define GROUP 8
/* Elements summed by lane before the lanes are folded into the row's sum: bounds a lane's chain (float32, 4096 / 16). */
#define CHUNK 4096

/* A row's statistics. xhat = ((x · 2^power − hi) − lo) · factor, power 0 but for scaled rows. */
typedef struct {
    double hi, lo, factor;
    double mean, rstd; /* what the caller gets */
    int power;
    int exact; /* float64 arithmetic with that power, row by row: exact.h */
} row_stats;

/* Σ (x − pivot) and Σ (x − pivot)² of one row: eight lanes, each an unevaluated pair */
typedef struct {
    double sum[8], sum_error[8], square[8], square_error[8];
} centred_sums;

/* s + t with its rounding error added to e (Knuth's TwoSum) */
ALWAYS void two_sum(vd *s, vd *e, vd t) {
    vd a = *s, r = a + t, z = r - a;
    *e += (a - (r - z)) + (t - z);
    *s = r;
}

/* Elements of a row summed as one tree of four vectors of eight lanes */
#define TREE 32

ALWAYS void add_centred(vd d0, vd d1, vd d2, vd d3, vd *sum, vd *sum_error, vd *square, vd *square_error) {
    two_sum(sum, sum_error, (d0 + d1) + (d2 + d3));
    two_sum(square, square_error, (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3));
}

/* Σ (x − pivot), Σ (x − pivot)²: element j in lane j mod 8 */
ALWAYS void center_row(const real *x, ptrdiff_t cols, double pivot, centred_sums *out) {
    enum { N = 8 / WD };
    const vd p = splat_d(pivot);
    vd sum[N], sum_error[N], square[N], square_error[N];
    EACH(i, N) sum[i] = sum_error[i] = square[i] = square_error[i] = (vd){0};
    ptrdiff_t j = 0;
    for (; j + TREE <= cols; j += TREE) {
        EACH(i, N) {
            const real *q = x + j + i * WD;
            add_centred(load_double(q) - p, load_double(q + 8) - p, load_double(q + 16) - p, load_double(q + 24) - p, &sum[i],
                        &sum_error[i], &square[i], &square_error[i]);
        }
    }
    if (j < cols) {
        const int left = (int)(cols - j);
        EACH(i, N) {
            vd d[4];
            EACH(k, 4) {
                int n = left - (8 * k + i * WD);
                n = n < 0 ? 0 : n > WD ? WD : n;
                d[k] = n == 0 ? (vd){0} : keep_part(load_part_double(x + j + 8 * k + i * WD, n) - p, n);
            }
            add_centred(d[0], d[1], d[2], d[3], &sum[i], &sum_error[i], &square[i], &square_error[i]);
        }
    }
    EACH(i, N) {
        store_d(out->sum + i * WD, sum[i]);
        store_d(out->sum_error + i * WD, sum_error[i]);
        store_d(out->square + i * WD, square[i]);
        store_d(out->square_error + i * WD, square_error[i]);
    }
}

/* mean = pivot + Σ (x − pivot) / D, var = (Σ (x − pivot)² − (Σ (x − pivot))² / D) / D, rstd = 1 / √(var + eps), each to
 * little more than one rounding, for the rows of a group (lanes of unused rows are computed and dropped) */
ALWAYS void finish_centred(const centred_sums *rows, const double *pivot, double cols, double eps, row_stats *stats) {
    for (int r = 0; r < GROUP; r += WD) {
        vd sum[8], sum_error[8], square[8], square_error[8], hi;
        EACH(k, WD) {
            EACH(i, 8) {
                sum[i][k] = rows[r + k].sum[i];
                sum_error[i][k] = rows[r + k].sum_error[i];
                square[i][k] = rows[r + k].square[i];
                square_error[i][k] = rows[r + k].square_error[i];
            }
            hi[k] = pivot[r + k];
        }
        for (int half = 4; half > 0; half /= 2) {
            for (int i = 0; i < half; ++i) {
                sum_error[i] += sum_error[i + half];
                two_sum(&sum[i], &sum_error[i], sum[i + half]);
                square_error[i] += square_error[i + half];
                two_sum(&square[i], &square_error[i], square[i + half]);
            }
        }
        const vd n = splat_d(cols);
        vd total = sum[0] + sum_error[0];
        vd lo = total / n;

        /* var + eps as the pair v + v_error */
        vd var_n = square[0], var_n_error = square_error[0];
        two_sum(&var_n, &var_n_error, -(total * lo));
        vd v = var_n / n;
        vd back = v * n;
        vd v_error = (((var_n - back) - product_error(v, n, back)) + var_n_error) / n;
        two_sum(&v, &v_error, splat_d(eps));

        /* one Newton step in double-double: rstd = r + r · (1 − v · r²) / 2 */
        vd r0 = 1.0 / root(v);
        vd rr = r0 * r0, rr_error = product_error(r0, r0, rr);
        vd vrr = v * rr, vrr_error = product_error(v, rr, vrr);
        vd miss = ((1.0 - vrr) - vrr_error) - (v * rr_error + v_error * rr);
        vd rstd = r0 + r0 * (miss * 0.5);

        EACH(k, WD) {
            row_stats *s = &stats[r + k];
            s->hi = hi[k];
            s->lo = lo[k];
            s->mean = hi[k] + lo[k];
            s->factor = s->rstd = rstd[k];
            s->power = 0;
            /* the pivot lies within a quarter σ, and nothing left its range (NaN fails the test) */
            s->exact = !(lo[k] * lo[k] * 16 <= v[k] && v[k] >= 1 / (RSTD_MAX * RSTD_MAX) && v[k] <= RSTD_MAX * RSTD_MAX);
        }
    }
}

#if REAL_IS_F32

/* Σ x and Σ x² of one row in float64: element j in lane j mod 16, lane i + lane i + 8, then sum_eight, chunk after chunk */
ALWAYS void sum_row(const float *x, ptrdiff_t cols, double *sum, double *square) {
    enum { N = 16 / WD };
    *sum = *square = 0;
    for (ptrdiff_t chunk = 0; chunk < cols; chunk += CHUNK) {
        const ptrdiff_t end = cols - chunk < CHUNK ? cols : chunk + CHUNK;
        vd s[N], q[N];
        EACH(i, N) s[i] = q[i] = (vd){0};
        ptrdiff_t j = chunk;
        for (; j + 16 <= end; j += 16) {
            EACH(i, N) {
                vd d = load_wide(x + j + i * WD);
                s[i] += d;
                q[i] = add_exact_product(d, d, q[i]);
            }
        }
        if (j < end) {
            const int left = (int)(end - j);
            EACH(i, N) {
                int n = left - i * WD;
                n = n < 0 ? 0 : n > WD ? WD : n;
                if (n > 0) {
                    vd d = load_part_wide(x + j + i * WD, n);
                    s[i] += d;
                    q[i] = add_exact_product(d, d, q[i]);
                }
            }
        }
        EACH(i, N / 2) {
            s[i] += s[i + N / 2];
            q[i] += q[i + N / 2];
        }
        *sum += sum_eight(s);
        *square += sum_eight(q);
    }
}

#else

/* Σ x of one row, only near enough for a pivot: trees of four vectors in eight lanes */
ALWAYS double sum_row(const double *x, ptrdiff_t cols) {
    enum { N = 8 / WD };
    vd s[N];
    EACH(i, N) s[i] = (vd){0};
    ptrdiff_t j = 0;
    for (; j + TREE <= cols; j += TREE) {
        EACH(i, N) {
            const double *q = x + j + i * WD;
            s[i] += (load_d(q) + load_d(q + 8)) + (load_d(q + 16) + load_d(q + 24));
        }
    }
    for (; j < cols; j += 8) {
        EACH(i, N) {
            ptrdiff_t n = cols - j - i * WD;
            n = n < 0 ? 0 : n > WD ? WD : n;
            if (n > 0) s[i] += load_part_d(x + j + i * WD, (int)n);
        }
    }
    return sum_eight(s);
}

#endif

/* gradient_f64.h: float64's gradient sums: Σ (x − mean), Σ h and Σ h · (x − mean). The first, which loses nothing, gives back what
 * rounding the mean to float64 took away; of a plain row (statistics_f64.h) that is too little to matter, and Σ h · x will do.
 *
 * What a result may be off by at most, in halves of an epsilon of what the bound (8 halves) multiplies, m ≥ |xhat|:
 *   dweight   x − hi 1, in lo 1 once more, · rstd + rest 1, rstd 1, · dy 1, the strip's tree 2, the result 1: 8.
 *   dx        of |h|: h 1, · rstd 1, rstd 1, − k1 1, the result 1: 5. Of mean|h|: h 1, its tree 2, mean 1, · rstd 1, rstd 1, − k1 1,
 *             the result 1: 8. Of m · mean(|h| · m): h 1, x − hi 1, and by trees 3 more, all of them of mean|h · xhat|; k2 1, the rstd³
 *             in it 3, x − hi 1, the result 1, all of them of |mean(h · xhat)|: together 8 where the second is at most 7/16 of mean|h|,
 *             as it is unless the gradient points along the row. Where it does, its products are summed without any loss: 8 again.
 * A plain row, hi 0 and lo its mean, |x| · rstd at most |xhat| + PLAIN: of dweight what the mean has lost 1.3, lo · rstd 0.25, · rstd +
 * rest 1, rstd 1, · dy 1, the strip's tree 2, the result 1: 7.6. Of dx as before, but that the four of h · x and its trees are 1.28
 * times as much, less the two of x − hi.
 * RMSNorm's hi, lo and k1 are 0: of |h| 4, of mean|h| none. */

/* Σ d, Σ h and Σ h · d of a group: eight lanes a row, each an unevaluated pair; and about Σ |h| */
typedef struct {
    vd d[GROUP][REGS], d_error[GROUP][REGS], h[GROUP][REGS], h_error[GROUP][REGS], hd[GROUP][REGS], hd_error[GROUP][REGS];
    vd size[GROUP][REGS];
} gradient_lanes;

/* Register i of each of the four vectors of eight lanes that make up the tree at dy of h = dy · weight; 0 where no more are `left` */
ALWAYS void load_products(const double *dy, const double *weight, int i, ptrdiff_t left, vd h[4]) {
    dy += i * WD;
    if (weight) weight += i * WD;
    if (left >= TREE) {
        EACH(k, 4) h[k] = product(dy + 8 * k, weight ? weight + 8 * k : 0);
        return;
    }
    EACH(k, 4) {
        const int n = left_of(i * WD + 8 * k, left);
        h[k] = n == 0 ? (vd){0} : product_part(dy + 8 * k, weight ? weight + 8 * k : 0, n);
    }
}

/* The sums of one row */
typedef struct {
    vd d[REGS], d_error[REGS], h[REGS], h_error[REGS], hd[REGS], hd_error[REGS], size[REGS];
} row_lanes;

ALWAYS void add_gradient(const double *x, const double *dy, const double *weight, ptrdiff_t left, double hi, int far,
                         const int centred, const int plain, row_lanes *s) {
    if (far) {
        fetch_ahead(x, TREE, DTYPE_OF_REAL);
        fetch_ahead(dy, TREE, DTYPE_OF_REAL);
    }
    EACH(i, REGS) {
        vd d[4], h[4];
        load_products(dy, weight, i, left, h);
        load_centred(x, i, left, hi, plain ? 0 : 4, d); /* the compiler drops + −0 */
        if (!plain) EACH(k, 4) add_beneath(&s->d[i], &s->d_error[i], d[k]);
        if (centred) two_sum(&s->h[i], &s->h_error[i], (h[0] + h[1]) + (h[2] + h[3]));
        two_sum(&s->hd[i], &s->hd_error[i], multiply_add(h[1], d[1], h[0] * d[0]) + multiply_add(h[3], d[3], h[2] * d[2]));
        s->size[i] += (magnitude(h[0]) + magnitude(h[1])) + (magnitude(h[2]) + magnitude(h[3]));
    }
}

/* hi: the mean, or 0 where the row is plain. `above`: no less than twice what Σ |x − mean| of a chunk comes to in a lane, from which those
 * sums start, as in statistics_f64.h. */
ALWAYS void center_gradient(const double *x, const double *dy, const double *weight, ptrdiff_t cols, double hi, double above_,
                            int r, int far, const int centred, const int plain, gradient_lanes *out) {
    const vd above = splat_d(above_);
    row_lanes s;
    EACH(i, REGS) s.d[i] = s.d_error[i] = s.h[i] = s.h_error[i] = s.hd[i] = s.hd_error[i] = s.size[i] = (vd){0};
    for (ptrdiff_t first = 0; first < cols; first += plain ? cols : CHUNK) {
        const ptrdiff_t last = plain || cols - first < CHUNK ? cols : first + CHUNK;
        vd d[REGS], d_error[REGS];
        EACH(i, REGS) {
            d[i] = s.d[i];
            d_error[i] = s.d_error[i];
            s.d[i] = above;
            s.d_error[i] = (vd){0};
        }
        ptrdiff_t j = first;
        for (; j <= last - TREE; j += TREE)
            add_gradient(x + j, dy + j, weight ? weight + j : 0, TREE, hi, far, centred, plain, &s);
        if (j < last) add_gradient(x + j, dy + j, weight ? weight + j : 0, last - j, hi, far, centred, plain, &s);
        EACH(i, REGS) {
            s.d[i] = s.d[i] - above;
            if (!plain && first) {
                two_sum(&s.d[i], &s.d_error[i], d[i]);
                s.d_error[i] += d_error[i];
            }
        }
    }
    EACH(i, REGS) {
        if (!plain) {
            out->d[r][i] = s.d[i];
            out->d_error[r][i] = s.d_error[i];
        }
        out->h[r][i] = s.h[i];
        out->h_error[r][i] = s.h_error[i];
        out->hd[r][i] = s.hd[i];
        out->hd_error[r][i] = s.hd_error[i];
        out->size[r][i] = s.size[i];
    }
}

/* Σ h · d of one row once more, every product and every sum with its error */
NEVER void sum_precisely(const double *x, const double *dy, const double *weight, ptrdiff_t cols, double hi, int r,
                         gradient_lanes *out) {
    EACH(i, REGS) {
        vd sum = {0}, error = {0};
        for (ptrdiff_t j = 0; j < cols; j += TREE) {
            vd d[4], h[4];
            load_centred(x + j, i, cols - j, hi, 4, d);
            load_products(dy + j, weight ? weight + j : 0, i, cols - j, h);
            EACH(k, 4) {
                const vd product = h[k] * d[k];
                const vm safe = (magnitude(product) >= 0x1p-900) & (magnitude(h[k]) <= 0x1p900); /* for product_error */
                error += (vd)((vm)product_error(h[k], d[k], product) & safe);
                two_sum(&sum, &error, product);
            }
        }
        out->hd[r][i] = sum;
        out->hd_error[r][i] = error;
    }
}

/* lo (a plain row's: its mean), mean(h) and mean(h · (x − mean)) from the lanes; and for which rows products by trees are good enough */
ALWAYS void finish_means(gradient_lanes *lanes, double cols, const double *mean, const double *hi, const double *rstd,
                         int all_plain, const int centred, gradient_means *means, int64_t *good) {
    vd d[REGS], d_error[REGS], h[REGS], h_error[REGS], hd[REGS], hd_error[REGS], size[REGS];
    EACH(i, REGS) d[i] = d_error[i] = (vd){0};
    if (!all_plain) sum_pairs(lanes->d, lanes->d_error, d, d_error);
    if (centred) sum_pairs(lanes->h, lanes->h_error, h, h_error);
    sum_pairs(lanes->hd, lanes->hd_error, hd, hd_error);
    sum_lanes(lanes->size, size);
    EACH(i, REGS) {
        vd rest;
        const vd n = splat_d(cols);
        means->lo[i] = means->mean_h[i] = (vd){0};
        if (centred) {
            const vd whole = load_d(mean + i * WD), lo = divide_pair(d[i], d_error[i], n, &rest);
            means->lo[i] = pick(load_d(hi + i * WD) == 0, whole, lo);
            means->mean_h[i] = divide_pair(h[i], h_error[i], n, &rest);
            means->mean_h[i] += rest;
            two_sum(&hd[i], &hd_error[i], -(means->lo[i] * (h[i] + h_error[i])));
        }
        means->size[i] = centred ? magnitude(means->mean_h[i]) : size[i] / n;
        means->mean_hd[i] = divide_pair(hd[i], hd_error[i], n, &means->mean_hd_rest[i]);
        store_m(good + i * WD, magnitude(hd[i]) * load_d(rstd + i * WD) <= 0.4375 * size[i]);
    }
}

/* Of one column nothing is plain: there x − mean is 0 exactly. */
ALWAYS int is_plain(double mean, double rstd, ptrdiff_t cols) { return cols > 1 && __builtin_fabs(mean) * rstd <= PLAIN; }

/* lo, mean(h) and mean(h · (x − mean)) of `rows` rows; without dx lo alone counts, which dweight needs, and a plain row has; where not
 * centred, nothing does */
ALWAYS void take_means(const void *x_, const void *dy_, const int format, const double *weight, const double *mean,
                       const double *rstd, int rows, ptrdiff_t cols, int far, int wanted, const int centred,
                       gradient_means *means) {
    const double *x = x_, *dy = dy_;
    (void)format;
    gradient_lanes lanes;
    double hi[GROUP];
    int64_t good[GROUP];
    int again = 0, all_plain = 1;
    if (!centred && !wanted) {
        memset(means, 0, sizeof *means);
        return;
    }
    /* Σ |x − mean| of n elements is at most √(n · D) σ, and σ at most 1 / rstd */
    const double n = (double)(((cols < CHUNK ? cols : CHUNK) + 7) / 8), above = 4 * root(splat_d(n * (double)cols))[0];
    for (int r = 0; r < GROUP; ++r) {
        hi[r] = is_plain(mean[r], rstd[r], cols) ? 0 : mean[r];
        if (r < rows && centred && !(hi[r] == 0)) {
            center_gradient(x + r * cols, dy + r * cols, weight, cols, mean[r], above / rstd[r], r, far, 1, 0, &lanes);
            all_plain = 0;
        } else if (r < rows && wanted) {
            center_gradient(x + r * cols, dy + r * cols, weight, cols, 0, 0, r, far, centred, 1, &lanes);
        } else {
            EACH(i, REGS) {
                lanes.d[r][i] = lanes.d_error[r][i] = lanes.h[r][i] = lanes.h_error[r][i] = (vd){0};
                lanes.hd[r][i] = lanes.hd_error[r][i] = lanes.size[r][i] = (vd){0};
            }
        }
    }
    finish_means(&lanes, (double)cols, mean, hi, rstd, all_plain, centred, means, good);
    for (int r = 0; wanted && r < rows; ++r) {
        if (good[r]) continue;
        sum_precisely(x + r * cols, dy + r * cols, weight, cols, hi[r], r, &lanes);
        again = 1;
    }
    if (again) finish_means(&lanes, (double)cols, mean, hi, rstd, all_plain, centred, means, good);
}

/* The rows for which lo is no more than a sixteenth of σ, or that are plain */
ALWAYS vm is_fit(vd mean, vd rstd, vd lo) {
    const vd off = magnitude(lo) * rstd;
    return (off <= 0x1p-4) | ((lo == mean) & (off <= PLAIN));
}

/* rstd³ · mean_hd, rounded once */
ALWAYS vd multiply_k2(vd rstd, vd mean_hd, vd mean_hd_rest) {
    const vd none = {0};
    vd square_rest, t_rest, rest;
    const vd square = multiply_pairs(rstd, none, rstd, none, &square_rest);
    const vd t = multiply_pairs(rstd, none, mean_hd, mean_hd_rest, &t_rest);
    const vd k2 = multiply_pairs(square, square_rest, t, t_rest, &rest);
    return k2 + (vd)((vm)rest & (magnitude(t) >= 0x1p-900) & (magnitude(k2) >= 0x1p-900)); /* for product_error */
}

/* WD rows' constants as they are. Returns the rows for which that is good enough: all. */
ALWAYS vm round_constants(vd mean, vd rstd, const gradient_means *means, int i, vd size, group_gradient *g) {
    (void)size;
    const vd k2 = multiply_k2(rstd, means->mean_hd[i], means->mean_hd_rest[i]);
    store_d(g->minus_hi + i * WD, -pick(means->lo[i] == mean, (vd){0}, mean));
    store_d(g->rstd + i * WD, rstd);
    store_d(g->rest + i * WD, -(means->lo[i] * rstd));
    store_d(g->k1 + i * WD, multiply_add(-means->lo[i], k2, rstd * means->mean_h[i]));
    store_d(g->slope + i * WD, -k2);
    return ~(vm){0};
}

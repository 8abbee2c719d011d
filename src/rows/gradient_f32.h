/* gradient_f32.h: float32's gradient sums: float32 products and first additions, as many roundings as the bounds leave, then float64.
 *
 * dx = (h · rstd − k1) − (x − hi) · k2 may be off by eight roundings (eps / 2 each) of each of its terms:
 *   |h|                       h, rstd, their product, two subtractions: 5
 *   mean|h|                   h, two additions, rstd, k1, two subtractions: 7
 *   |xhat| · mean|h · xhat|   h, x − hi, their product, one addition; x − hi, k2, their product, one subtraction: 8
 * x − hi lacks lo, which k1 makes good: k1 = rstd · mean(h) − lo · k2. RMSNorm's hi, lo and k1 are 0: of |h| 4, of mean|h| none. */

/* Columns whose products are added before they are widened: two of h · (x − hi), four of h */
#define STEP 64

/* A step of one row: Σ h (Σ |h| where not centred) by column mod 16, Σ h · (x − hi) by column mod 32 */
typedef struct {
    float h[STEP / 4], hd[STEP / 2];
} step_sums;

/* The WF elements at p, of which `left` are there: 0 for the others */
ALWAYS vf read_left(const void *p, ptrdiff_t left, const int format) {
    return left >= WF ? read_n(p, WF, format) : left <= 0 ? (vf){0} : read_n(p, (int)left, format);
}

/* h = dy · weight and h · (x − hi) of a step of which `left` columns are there, added up: (0 + 1) + (2 + 3) and 0 + 1, 2 + 3, of sixteen
 * columns each; sixteens: 4, or 2 where the others are not there */
ALWAYS void add_products(const void *x, const void *dy, const int format, const float *weight, ptrdiff_t pitch, ptrdiff_t left,
                         const int sixteens, const int rows, const int centred, const vf *minus_hi, step_sums *out) {
    EACH(i, 16 / WF) {
        vf h[ABREAST][4], hd[ABREAST][4];
        EACH(k, sixteens) {
            const ptrdiff_t at = 16 * k + i * WF;
            const vf w = weight ? read_left(weight + at, left - at, LN_FLOAT32) : splat_f(1);
            EACH(r, rows) {
                const vf dy_r = read_left(element(dy, r * pitch + at, format), left - at, format),
                         x_r = read_left(element(x, r * pitch + at, format), left - at, format);
                h[r][k] = weight ? dy_r * w : dy_r;
                hd[r][k] = h[r][k] * (centred ? x_r + minus_hi[r] : x_r);
                if (!centred) h[r][k] = magnitude_f(h[r][k]);
            }
        }
        EACH(r, rows) {
            store_f(out[r].h + i * WF, sixteens == 4 ? (h[r][0] + h[r][1]) + (h[r][2] + h[r][3]) : h[r][0] + h[r][1]);
            store_f(out[r].hd + i * WF, hd[r][0] + hd[r][1]);
            store_f(out[r].hd + 16 + i * WF, sixteens == 4 ? hd[r][2] + hd[r][3] : (vf){0});
        }
    }
}
ALWAYS void add_left(const void *x, const void *dy, const int format, const float *weight, ptrdiff_t pitch, ptrdiff_t left,
                     const int rows, const int centred, const vf *minus_hi, step_sums *out) {
    if (left >= STEP)
        add_products(x, dy, format, weight, pitch, STEP, 4, rows, centred, minus_hi, out);
    else if (left > STEP / 2)
        add_products(x, dy, format, weight, pitch, left, 4, rows, centred, minus_hi, out);
    else
        add_products(x, dy, format, weight, pitch, left, 2, rows, centred, minus_hi, out);
}

/* A row's sums so far: sixteen lanes of float64 */
typedef struct {
    vd h[2 * REGS], hd[2 * REGS];
} row_products;

/* A step's sums into the row's; its first step's, in their place */
ALWAYS void add_step(const step_sums *step, const int first, row_products *s) {
    EACH(i, 2 * REGS) {
        const float *hd = step->hd + i * WD;
        const vd h_i = load_wide(step->h + i * WD), hd_i = plus_d(load_wide(hd), load_wide(hd + 16));
        s->h[i] = first ? h_i : plus_d(h_i, s->h[i]);
        s->hd[i] = first ? hd_i : plus_d(hd_i, s->hd[i]);
    }
}

ALWAYS void fetch_steps(const void *x, const void *dy, const int format, ptrdiff_t pitch, const int rows) {
    EACH(r, rows) {
        fetch_ahead(element(x, r * pitch, format), STEP, format);
        fetch_ahead(element(dy, r * pitch, format), STEP, format);
    }
}

/* Σ h (where not centred Σ |h|) and Σ h · (x − hi) of `rows` rows: lane i + lane i + 8 of sixteen lanes. A step's sums are widened, from
 * memory, under the next step's products: from registers, or at once, it took a quarter longer. */
ALWAYS void sum_gradient(const void *x, const void *dy, const int format, const float *weight, ptrdiff_t cols, const int rows,
                         const float *mean, int far, const int centred, vd (*h_sum)[REGS], vd (*hd_sum)[REGS]) {
    step_sums room[2][ABREAST];
    row_products s[ABREAST];
    vf minus_hi[ABREAST];
    EACH(r, rows) minus_hi[r] = splat_f(-mean[r]);
#define AT(J) element(x, J, format), element(dy, J, format), format
    add_left(AT(0), weight, cols, cols, rows, centred, minus_hi, room[0]);
    if (cols > STEP) add_left(AT(STEP), weight ? weight + STEP : 0, cols, cols - STEP, rows, centred, minus_hi, room[1]);
    EACH(r, rows) add_step(&room[0][r], 1, &s[r]);
    ptrdiff_t j = 2 * STEP;
    /* two whole steps a turn, which know where the room of each lies: a twentieth of the instructions spared */
    for (; j <= cols - 2 * STEP; j += 2 * STEP) {
        EACH(k, 2) {
            const ptrdiff_t at = j + k * STEP;
            if (far) fetch_steps(AT(at), cols, rows);
            add_products(AT(at), weight ? weight + at : 0, cols, STEP, 4, rows, centred, minus_hi, room[k]);
            EACH(r, rows) add_step(&room[1 - k][r], 0, &s[r]);
        }
    }
    int at = 1;
    for (; j < cols; j += STEP, at ^= 1) {
        if (far) fetch_steps(AT(j), cols, rows);
        add_left(AT(j), weight ? weight + j : 0, cols, cols - j, rows, centred, minus_hi, room[at ^ 1]);
        EACH(r, rows) add_step(&room[at][r], 0, &s[r]);
    }
#undef AT
    if (cols > STEP) EACH(r, rows) add_step(&room[at][r], 0, &s[r]);
    EACH(r, rows) EACH(i, REGS) {
        h_sum[r][i] = s[r].h[i] + s[r].h[i + REGS];
        hd_sum[r][i] = s[r].hd[i] + s[r].hd[i + REGS];
    }
}

/* mean(h) and mean(h · (x − mean)) = mean(h · (x − hi)) − lo · mean(h) of a group, from its rows' sums */
ALWAYS void finish_means(const vd h[REGS], const vd hd[REGS], const double *mean, double cols, const int centred,
                         gradient_means *means) {
    const vd share = splat_d(1 / cols);
    EACH(i, REGS) {
        const vd mean_i = load_d(mean + i * WD), mean_h = h[i] * share;
        means->lo[i] = mean_i - widen(narrow(mean_i));
        means->size[i] = magnitude(mean_h);
        means->mean_h[i] = centred ? mean_h : (vd){0};
        means->mean_hd[i] = hd[i] * share - means->lo[i] * means->mean_h[i];
    }
}

/* Those of `rows` rows; 0 where dx is not wanted */
ALWAYS void take_means(const void *x, const void *dy, const int format, const float *weight, const double *mean, const double *rstd,
                       int rows, ptrdiff_t cols, int far, int wanted, const int centred, gradient_means *means) {
    (void)rstd;
    vd h[GROUP][REGS], hd[GROUP][REGS], h_sum[REGS] = {{0}}, hd_sum[REGS] = {{0}};
    float hi[GROUP];
    EACH(i, REGS) store_h(hi + i * WD, narrow(load_d(mean + i * WD)));
    /* in a loop for each case it took a tenth longer where rows are short */
    for (int r = 0, some; wanted && r < GROUP; r += some) {
        const void *x_r = element(x, r * cols, format), *dy_r = element(dy, r * cols, format);
        some = rows - r >= ABREAST ? ABREAST : 1;
        if (r >= rows)
            EACH(i, REGS) h[r][i] = hd[r][i] = (vd){0};
        else if (some == ABREAST && weight)
            sum_gradient(x_r, dy_r, format, weight, cols, ABREAST, hi + r, far, centred, h + r, hd + r);
        else if (weight)
            sum_gradient(x_r, dy_r, format, weight, cols, 1, hi + r, far, centred, h + r, hd + r);
        else
            for (int k = 0; k < some; ++k)
                sum_gradient(element(x_r, k * cols, format), element(dy_r, k * cols, format), format, 0, cols, 1, hi + r + k, far,
                             centred, h + r + k, hd + r + k);
    }
    if (wanted) {
        sum_lanes(h, h_sum);
        sum_lanes(hd, hd_sum);
    }
    finish_means(h_sum, hd_sum, mean, (double)cols, centred, means);
}

/* The rows for which hi and lo hold the mean to 2^-29 of σ, and lo is no more than an eighth of σ */
ALWAYS vm is_fit(vd mean, vd rstd, vd lo) {
    (void)lo;
    return magnitude(mean) * rstd <= 0x1p21;
}

/* WD rows' constants, rounded to float32. Returns the rows for which no product on the way left its range, and what underflowed is
 * below the bound: an h · (x − hi) that did is off by 2^-150. */
ALWAYS vm round_constants(vd mean, vd rstd, const gradient_means *means, int i, vd size, group_gradient *g) {
    const vd k2 = (rstd * rstd) * (rstd * means->mean_hd[i]);
    const vh short_rstd = narrow(rstd);
    store_h(g->minus_hi + i * WD, -narrow(mean));
    store_h(g->rstd + i * WD, short_rstd);
    store_h(g->rest + i * WD, narrow(-(means->lo[i] * rstd)));
    /* from the rounded rstd: a row of one h cancels to 0 */
    store_h(g->k1 + i * WD, narrow(widen(short_rstd) * means->mean_h[i] - means->lo[i] * k2));
    store_h(g->slope + i * WD, narrow(-k2));
    return (size >= rstd * 0x1p-122) & ((k2 == 0) | ((magnitude(k2) >= 0x1p-126) & (magnitude(k2) <= SCALE_MAX)));
}

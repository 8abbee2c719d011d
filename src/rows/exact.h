/* exact.h: the exact way, for the rare row that leaves its type's range or is not finite: one element after the other, in
 * float64 scaled by powers of two, sums as pairs. Knows rows. Does not know speed. */

/* v · 2^power, for any power: exact but for what leaves the range of float64 */
ALWAYS double scale(double v, int power) {
    while (power > 1000) {
        v *= 0x1p1000;
        power -= 1000;
    }
    while (power < -1000) {
        v *= 0x1p-1000;
        power += 1000;
    }
    union {
        uint64_t bits;
        double value;
    } two = {.bits = (uint64_t)(1023 + power) << 52};
    return v * two.value;
}

/* v = m · 2^power with 1 ≤ |m| < 2; v itself and power 0 for 0, infinities and NaN */
ALWAYS double split_power(double v, int *power) {
    union {
        double value;
        uint64_t bits;
    } u = {.value = v};
    int e = (int)(u.bits >> 52 & 0x7ff), shift = 0;
    *power = 0;
    if (v == 0 || e == 0x7ff) return v;
    if (e == 0) {
        u.value = v * 0x1p100;
        shift = 100;
        e = (int)(u.bits >> 52 & 0x7ff);
    }
    *power = e - 1023 - shift;
    u.bits = (u.bits & ~(0x7ffull << 52)) | 1023ull << 52;
    return u.value;
}

typedef struct {
    double sum, error;
} pair;

ALWAYS void add_to_pair(pair *p, double t) {
    double a = p->sum, r = a + t, z = r - a;
    p->error += (a - (r - z)) + (t - z);
    p->sum = r;
}

/* The power of two that brings the row's largest magnitude into [1, 2); 0 for a row of zeros. *finite: no Inf, no NaN. */
ALWAYS int row_power(const real *x, ptrdiff_t cols, int *finite) {
    double most = 0;
    *finite = 1;
    for (ptrdiff_t j = 0; j < cols; ++j) {
        double a = x[j] < 0 ? -(double)x[j] : (double)x[j];
        if (!(a < __builtin_inf())) *finite = 0;
        if (a > most) most = a;
    }
    int power = 0;
    if (*finite) split_power(most, &power);
    return -power;
}

/* Statistics of the scaled row, recentred until the pivot lies near the mean; about 0 where not centred. */
NEVER void scale_statistics(const real *x, ptrdiff_t cols, double eps, int centred, scaled_row *stats) {
    int finite;
    const int power = row_power(x, cols, &finite);
    stats->power = power;
    if (!finite) {
        stats->hi = stats->lo = stats->factor = stats->mean = stats->rstd = __builtin_nan("");
        return;
    }
    const double scaled_eps = scale(eps, 2 * power);
    const double n = (double)cols;
    pair total = {0, 0};
    for (ptrdiff_t j = 0; centred && j < cols; ++j)
        add_to_pair(&total, scale(x[j], power));
    double pivot = (total.sum + total.error) / n;
    centred_stats found;
    for (int turn = 0; turn < 4; ++turn) {
        pair sum = {0, 0}, square = {0, 0};
        for (ptrdiff_t j = 0; j < cols; ++j) {
            double d = scale(x[j], power) - pivot;
            add_to_pair(&sum, d);
            add_to_pair(&square, d * d);
        }
        found = finish_centred(splat_d(sum.sum), splat_d(sum.error), splat_d(square.sum), splat_d(square.error), splat_d(pivot),
                               splat_d(__builtin_inf()), splat_d(n), scaled_eps, centred, 0);
        if (found.good[0] || found.hi[0] == pivot) break;
        pivot = found.hi[0];
    }
    stats->hi = found.hi[0];
    stats->lo = found.lo[0];
    stats->factor = found.rstd[0];
    stats->mean = scale(stats->hi + stats->lo, -power);
    stats->rstd = scale(stats->factor, power);
    /* eps alone decides: it left the scaled range upwards, or stands alone below it */
    const int constant = !(stats->factor < __builtin_inf());
    if (!(scaled_eps < 0x1p200) || (constant && eps > 0)) {
        vd whole = splat_d(eps);
        stats->rstd = (1.0 / root(whole))[0];
        stats->factor = constant && scaled_eps < 0x1p200 ? 1 : scale(stats->rstd, -power);
    } else if (constant) {
        stats->rstd = stats->factor = __builtin_inf(); /* eps 0: 0 · ∞ in y */
    }
}

/* y = xhat · weight + bias */
NEVER void scale_normalize(const real *x, const real *weight, const real *bias, ptrdiff_t cols, const scaled_row *s, real *y) {
    const double rest = -(s->lo * s->factor);
    for (ptrdiff_t j = 0; j < cols; ++j) {
        double xhat = __builtin_fma(scale(x[j], s->power) - s->hi, s->factor, rest);
        double v = weight && bias ? __builtin_fma(xhat, weight[j], bias[j]) : weight ? xhat * weight[j] : xhat;
        y[j] = (real)(bias && !weight ? v + bias[j] : v);
    }
}

/* gradient.h: the two means that dx needs of a row, mean(h) and mean(h · (x − mean)), and what becomes of them. RMSNorm (not centred)
 * has 0 for its mean and for the first of the two.
 *
 * h = dy · weight is rounded to the row's type first, and only then summed.
 *   fast      float32: gradient_f32.h, float64: gradient_f64.h; good for every offset.
 *   exact     exact_gradient.h: what overflows, underflows or is not finite, a mean that two float32 cannot hold. */

/* What the strip pass needs of each row, mean = hi + lo:
 * xhat = (x − hi) · rstd + rest,   dx = (x − hi) · slope + (h · rstd − k1); the sum x + −hi takes x from memory */
typedef struct {
    real minus_hi[GROUP], rstd[GROUP], rest[GROUP], k1[GROUP], slope[GROUP];
    int64_t fit[GROUP];   /* 0: those constants are no good, whatever dy is */
    int64_t exact[GROUP]; /* not 0: instead of those, the row's exact_row */
    exact_row rows[GROUP];
    int any_exact;
} group_gradient;

/* The means of all rows of a group, WD rows a register; lo: what float64 (float32: float32) lacks of the mean; float64 also has what
 * mean_hd lacks. size: of h, for what leaves the range: |mean(h)|, where not centred about mean|h| */
typedef struct {
    vd lo[REGS], mean_h[REGS], mean_hd[REGS], mean_hd_rest[REGS], size[REGS];
} gradient_means;

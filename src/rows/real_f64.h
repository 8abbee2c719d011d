/* real_f64.h: what the row arithmetic calls `real` is float64. */
#define WIDE_BYTES LN_BYTES

#define LN_DTYPE f64
#include "names.h"

#include "vector.h"

#include "wide.h"

#include "lanes.h"

#include "multiply_add.h"

#include "mode.h"

/* What is done otherwise for the other dtype: one file for each subject */
#define STATISTICS_OF_REAL "statistics_f64.h"
#define GRADIENT_OF_REAL "gradient_f64.h"
#define SUMS_OF_REAL "sums_f64.h"
#define FORMATS_OF_REAL "formats_f64.h"
#define ACROSS_OF_REAL "across_f64.h"
#define ACROSS_GRADIENT_OF_REAL "across_gradient_f64.h"
#define W WD

typedef double real;
typedef vd vec;

#define load load_d
#define store store_d
#define splat splat_d
#define load_n load_n_d
#define store_n store_n_d
#define stream stream_d
#define multiply_add multiply_add_d

/* Eight-byte lanes from reals: WD elements at p, or the first n of them and 0 */
#define load_double load_d
#define load_part_double load_part_d
#define load_n_double load_n_d
/* and back */
#define store_n_double store_n_d

/* h = dy · weight rounded to real, in eight-byte lanes; weight NULL: ones */
ALWAYS vd product(const double *dy, const double *weight) { return weight ? load_d(dy) * load_d(weight) : load_d(dy); }
ALWAYS vd product_part(const double *dy, const double *weight, int n) {
    return weight ? load_part_d(dy, n) * load_part_d(weight, n) : load_part_d(dy, n);
}

/* Powers of two between which one row's rstd, and a gradient's scale, may lie for the fast path: no float64 on the way,
 * squares and their rounding errors included, leaves its range, and what underflows is below the bound. */
#define RSTD_MAX 0x1p200
#define SCALE_MIN 0x1p-500
#define SCALE_MAX 0x1p500

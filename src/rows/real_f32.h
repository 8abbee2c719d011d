/* real_f32.h: what the row arithmetic calls `real` is float32. */

/* Registers of the float64 sums: 32-byte ones convert 16 elements in three quarters of the time that 64-byte ones take (Zen 4: 2.0
 * against 2.6 cycles), on the ports that the sums wait for. */
#if LN_BYTES == 16
#define WIDE_BYTES 16
#else
#define WIDE_BYTES 32
#endif

#define LN_DTYPE f32
#include "names.h"

#include "vector.h"

#include "wide.h"

#include "lanes.h"

#include "mode.h"

/* What is done otherwise for the other dtype: one file for each subject */
#define STATISTICS_OF_REAL "statistics_f32.h"
#define GRADIENT_OF_REAL "gradient_f32.h"
#define SUMS_OF_REAL "sums_f32.h"
#define FORMATS_OF_REAL "formats_f32.h"
#define ACROSS_OF_REAL "across_f32.h"
#define ACROSS_GRADIENT_OF_REAL "across_gradient_f32.h"
#define W WF

typedef float real;
typedef vf vec;

#define load load_f
#define store store_f
#define splat splat_f
#define load_n load_n_f
#define store_n store_n_f
#define stream stream_f
#define multiply_add multiply_add_f

/* Eight-byte lanes from reals: WD elements at p, or the first n of them and 0 */
#define load_double load_wide
#define load_part_double load_part_wide
#define load_n_double load_n_wide
/* and back, rounded to nearest */
#define store_n_double store_n_wide

/* Powers of two between which one row's rstd, and a gradient's scale, may lie for the fast path: no float32 on the way
 * leaves its range, and what underflows is below the bound. */
#define RSTD_MAX 0x1p100
#define SCALE_MIN 0x1p-120
#define SCALE_MAX 0x1p100

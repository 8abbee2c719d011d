/* body.h: the row arithmetic of one target and one dtype, and the table that offers it. What differs by dtype stands in files that
 * real_f32.h and real_f64.h name. */
#include "runs.h"

#include FORMATS_OF_REAL

#include "stored.h"

#include "statistics.h"

#include "exact.h"

#include STATISTICS_OF_REAL

#include "choose.h"

#include "turn.h"

#include "output.h"

#include "forward.h"

#include "exact_gradient.h"

#include "gradient.h"

#include GRADIENT_OF_REAL

#include "choose_gradient.h"

#include SUMS_OF_REAL

#include "strip.h"

#include "fold.h"

#include "tiles.h"

#include "backward.h"

#include "views.h"

#include "parameters.h"

#include "across.h"

#include ACROSS_OF_REAL

#include ACROSS_GRADIENT_OF_REAL

#include "across_views.h"

#include "masks.h"

#include "forward_views.h"

#include "backward_views.h"

#include "xhat.h"

#include "moments.h"

#include "split.h"

#include "derivatives.h"

#define PIECES {moments_rows, normalize_rows, backward_sums_rows, backward_apply_rows, jvp_rows, double_backward_rows}
const ln_rows LN_NAME(ln_rows)[LN_NORMS] = {
    [LN_LAYER_NORM] = {forward_rows, backward_rows, backward_constants, backward_columns, fold_blocks, PLANES, GROUP,
                       sizeof(group_gradient), forward_views, backward_views, NARROW_REALS, PIECES},
    [LN_RMS_NORM] = {forward_rows_rms, backward_rows_rms, backward_constants_rms, backward_columns, fold_blocks, PLANES, GROUP,
                     sizeof(group_gradient), forward_views_rms, backward_views_rms, NARROW_REALS},
};

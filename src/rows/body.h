/* body.h: the row arithmetic of one target and one dtype, and the table that offers it. */
#include "names.h"

#include "statistics.h"

#include "exact.h"

#include "choose.h"

#include "output.h"

#include "forward.h"

#include "exact_gradient.h"

#include "gradient_sums.h"

/* Planes of a block's sums: dweight then dbias, float64 as pairs of planes (sums, their errors). */
#define PLANES (REAL_IS_F32 ? 2 : 4)

#include "pair.h"

#include "backward.h"

#include "fold.h"

const ln_rows LN_NAME(ln_rows) = {forward_rows, backward_rows, fold_blocks, PLANES};

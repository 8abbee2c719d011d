/* f64_baseline.c: the f64 row arithmetic for baseline. */
#include "target_baseline.h"

#include "real_f64.h"

#include "body.h"

#include "target_end.h"

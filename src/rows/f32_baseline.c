/* f32_baseline.c: the f32 row arithmetic for baseline. */
#include "target_baseline.h"

#include "real_f32.h"

#include "body.h"

#include "target_end.h"

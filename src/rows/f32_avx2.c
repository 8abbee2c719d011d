/* f32_avx2.c: the f32 row arithmetic for avx2. */
#if defined(__x86_64__)
#include "target_avx2.h"
#include "real_f32.h"
#include "body.h"
#include "target_end.h"
#else
typedef int ln_not_for_this_cpu;
#endif

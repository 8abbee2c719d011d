/* f64_avx2.c: the f64 row arithmetic for avx2. */
#if defined(__x86_64__)
#include "target_avx2.h"
#include "real_f64.h"
#include "body.h"
#include "target_end.h"
#else
typedef int ln_not_for_this_cpu;
#endif

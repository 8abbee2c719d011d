/* f64_avx512.c: the f64 row arithmetic for avx512. */
#if defined(__x86_64__)
#include "target_avx512.h"
#include "real_f64.h"
#include "body.h"
#include "target_end.h"
#else
typedef int ln_not_for_this_cpu;
#endif

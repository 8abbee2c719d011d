/* target_avx512.h: what follows is compiled for AVX-512F and VL, 64-byte vectors. Ended by target_end.h. */
#include "headers.h"
#define LN_BYTES 64
#define LN_REGISTERS 32
#define LN_SUFFIX avx512
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512vl")
#endif

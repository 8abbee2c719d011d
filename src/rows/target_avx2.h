/* target_avx2.h: what follows is compiled for AVX2 with FMA, 32-byte vectors. Ended by target_end.h. */
#include "headers.h"
#define LN_BYTES 32
#define LN_REGISTERS 16
#define LN_SUFFIX avx2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

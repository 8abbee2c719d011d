/* target_end.h: ends the region that target_avx2.h or target_avx512.h opened. */
#if LN_BYTES > 16
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

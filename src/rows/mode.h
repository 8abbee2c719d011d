/* mode.h: the processor's floating-point mode, for the time of a kernel. */

/* The floating-point mode: round to nearest, no flush to zero, no traps. */
#if defined(__SSE2__)
typedef unsigned int fp_mode;
ALWAYS fp_mode fp_enter(void) {
    fp_mode mode = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return mode;
}
ALWAYS void fp_leave(fp_mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
typedef uint64_t fp_mode;
ALWAYS fp_mode fp_enter(void) {
    fp_mode mode, plain = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(plain) : "memory");
    return mode;
}
ALWAYS void fp_leave(fp_mode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#else
typedef int fp_mode;
ALWAYS fp_mode fp_enter(void) { return 0; }
ALWAYS void fp_leave(fp_mode mode) { (void)mode; }
#endif

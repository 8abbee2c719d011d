/* thread_modes.c: the floating-point modes of OpenMP's threads but the first, which is the caller's own: sets them, tells them. */
#include <omp.h>
#include <xmmintrin.h>

void set_modes(int num_threads, unsigned mxcsr) {
#pragma omp parallel num_threads(num_threads)
    if (omp_get_thread_num() > 0) _mm_setcsr(mxcsr);
}

/* modes: out (num_threads,), the first is not written */
void tell_modes(int num_threads, unsigned *modes) {
#pragma omp parallel num_threads(num_threads)
    if (omp_get_thread_num() > 0) modes[omp_get_thread_num()] = _mm_getcsr();
}

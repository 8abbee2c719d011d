/* cross_bits.c: a digest of the kernels' results, from C alone, for each instruction set this CPU (or its emulator) can run.
 * Built for another architecture it shows whether that one computes the same bits; .ci/run does so for ARM's NEON. Under Valgrind or
 * sanitizers it shows accesses past an array, and results that were not written: .ci/sanitize. */
#include "kernels.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 11, SCALES = 3 };

static uint64_t state, digest;

/* a pseudo-random number in (−1, 1): xorshift */
static double draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(int64_t)state / 9.3e18;
}

/* FNV-1a */
static void add(const void *p, size_t size) {
    const unsigned char *c = p;
    for (size_t i = 0; i < size; ++i)
        digest = (digest ^ c[i]) * UINT64_C(1099511628211);
}

static void *room(size_t size) {
    void *p = malloc(size);
    if (!p) exit(2);
    return p;
}

static void set(void *array, int is_f64, size_t i, double v) {
    if (is_f64)
        ((double *)array)[i] = v;
    else
        ((float *)array)[i] = (float)v;
}

/* One shape: forward, backward and fold, then backward by columns, in two ranges, on rows of which one lies far off, scaled to ordinary, huge and tiny size. */
static void run(int norm, int is_f64, ptrdiff_t cols, double scale, int far) {
    const ln_rows *kernels = ln_rows_of(norm, is_f64 ? LN_FLOAT64 : LN_FLOAT32);
    const size_t size = is_f64 ? 8 : 4, count = (size_t)(ROWS * cols), row = (size_t)cols;
    void *x = room(count * size), *dy = room(count * size), *y = room(count * size), *dx = room(count * size);
    void *weight = room(row * size), *bias = room(row * size), *dweight = room(row * size), *dbias = room(row * size);
    double *sums = room((size_t)kernels->planes * row * 8), mean[ROWS] = {0}, rstd[ROWS];
    for (size_t i = 0; i < count; ++i) {
        set(x, is_f64, i, (draw() + (i / row == 3 ? 1e5 : 0)) * scale);
        set(dy, is_f64, i, draw());
    }
    for (size_t i = 0; i < row; ++i) {
        set(weight, is_f64, i, draw());
        set(bias, is_f64, i, draw());
    }
    kernels->forward(x, weight, bias, 0, ROWS, cols, 1e-5, far, y, mean, rstd);
    kernels->backward(x, dy, weight, mean, rstd, 0, ROWS, cols, far, dx, sums);
    kernels->fold(sums, 1, 0, cols, cols, dweight, dbias);
    add(y, count * size);
    add(mean, sizeof mean);
    add(rstd, sizeof rstd);
    add(dx, count * size);
    add(dweight, row * size);
    add(dbias, row * size);
    const ptrdiff_t middle = cols / 3;
    char *constants = room(2 * kernels->constants_size);
    kernels->constants(x, dy, weight, mean, rstd, 0, ROWS, cols, far, 1, constants);
    kernels->columns(x, dy, weight, constants, ROWS, 0, middle, cols, far, 1, dx, NULL, dweight, dbias);
    kernels->columns(x, dy, weight, constants, ROWS, middle, cols, cols, far, 1, dx, NULL, dweight, dbias);
    free(constants);
    add(dx, count * size);
    add(dweight, row * size);
    add(dbias, row * size);
    void *all[] = {x, dy, y, dx, weight, bias, dweight, dbias, sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        free(all[i]);
}

int main(void) {
    static const ptrdiff_t lengths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 768, 1001, 4097};
    static const double scales[SCALES] = {1, 1e30, 1e-40};
    for (int k = 0; ln_isa_at(k); ++k) {
        if (ln_choose(ln_isa_at(k))) return 1;
        state = UINT64_C(88172645463325252);
        digest = UINT64_C(1469598103934665603);
        for (int kind = 0; kind < 2 * LN_NORMS; ++kind)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i)
                for (int s = 0; s < SCALES; ++s)
                    run(kind / 2, kind % 2, lengths[i], scales[s], (int)(i + (size_t)s) % (LN_IN_MEMORY + 1));
        printf("%016" PRIx64 " %s\n", digest, ln_isa());
    }
    return 0;
}

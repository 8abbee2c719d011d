/* cross_bits.c: a digest of the kernels' results, from C alone, for each instruction set this CPU (or its emulator) can run.
 * Built for another architecture it shows whether that one computes the same bits; .ci/run does so for ARM's NEON. Under Valgrind or
 * sanitizers it shows accesses past an array, and results that were not written: .ci/sanitize. */
#include "kernels.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 11, SCALES = 3, SAMPLES = 2, PLACES = 37 };

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

/* cut off, what is too large at the largest, what is too small at 0 */
static uint16_t cut_to_half(int dtype, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (dtype == LN_BFLOAT16) return (uint16_t)(bits >> 16);
    const int power = (int)(bits >> 23 & 255) - 112;
    const uint32_t sign = bits >> 16 & 0x8000, size = power <= 0   ? 0
                                                      : power > 30 ? 0x7bff
                                                                   : (uint32_t)power << 10 | (bits >> 13 & 0x3ff);
    return (uint16_t)(sign | size);
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

/* The pieces and the derivatives, of the same rows, about a shift and not. */
static void run_pieces(int is_f64, ptrdiff_t cols, double scale, int far) {
    const ln_rows *kernels = ln_rows_of(LN_LAYER_NORM, is_f64 ? LN_FLOAT64 : LN_FLOAT32);
    const size_t size = is_f64 ? 8 : 4, count = (size_t)(ROWS * cols), row = (size_t)cols;
    void *in[] = {room(count * size), room(count * size), room(count * size)}, *out[] = {room(count * size), room(count * size)};
    void *parameters[4], *gradients[] = {room(row * size), room(row * size)};
    double *sums = room((size_t)kernels->planes * row * 8), statistics[7][ROWS];
    for (int k = 0; k < 4; ++k) {
        parameters[k] = room(row * size);
        for (size_t i = 0; i < row; ++i)
            set(parameters[k], is_f64, i, draw());
    }
    for (size_t i = 0; i < count; ++i) {
        set(in[0], is_f64, i, (draw() + (i / row == 3 ? 1e5 : 0)) * scale);
        set(in[1], is_f64, i, draw());
        set(in[2], is_f64, i, draw());
    }
    for (int i = 0; i < ROWS; ++i) {
        statistics[0][i] = draw() * scale;
        statistics[1][i] = (double)cols;
        statistics[2][i] = (1.5 + draw()) / scale;
    }
    ln_operands a = {
        .x = in[0],
        .dy = in[1],
        .ddx = in[2],
        .out = out[0],
        .gx = out[1],
        .cols = cols,
        .far = far,
        .weight = parameters[0],
        .bias = parameters[1],
        .ddweight = parameters[2],
        .ddbias = parameters[3],
        .shift = statistics[0],
        .count = statistics[1],
        .rstd = statistics[2],
        .mean = statistics[3],
        .m2 = statistics[4],
        .sum_h = statistics[5],
        .sum_h_xhat = statistics[6],
    };
    for (int shifted = 1; shifted >= 0; --shifted) {
        if (!shifted) a.shift = NULL;
        for (int piece = 0; piece < LN_PIECES; ++piece) {
            const int sums_up = piece == LN_BACKWARD_SUMS || piece == LN_DOUBLE_BACKWARD;
            const int whole = piece != LN_MOMENTS && piece != LN_BACKWARD_SUMS;
            kernels->pieces[piece](&a, 0, ROWS, sums_up ? sums : NULL);
            if (piece == LN_MOMENTS) add(a.mean, 2 * sizeof statistics[0]); /* and m2 */
            if (piece == LN_BACKWARD_SUMS) add(a.sum_h, 2 * sizeof statistics[0]);
            if (whole) add(out[0], count * size);
            if (piece == LN_DOUBLE_BACKWARD) add(out[1], count * size);
            if (!sums_up) continue;
            kernels->fold(sums, 1, 0, cols, cols, gradients[0], gradients[1]);
            add(gradients[0], row * size);
            if (piece == LN_BACKWARD_SUMS) add(gradients[1], row * size);
        }
    }
    void *all[] = {in[0], in[1], in[2], out[0], out[1], gradients[0], gradients[1], sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        free(all[i]);
    for (int k = 0; k < 4; ++k)
        free(parameters[k]);
}

/* (samples, cols, places), normalised along its middle axis; a parameter: (cols,), the same for every row */
static ln_view view_across(void *data, int is_f64, ptrdiff_t cols) {
    const int itemsize = is_f64 ? 8 : 4;
    return (ln_view){.data = data,
                     .dtype = is_f64 ? LN_FLOAT64 : LN_FLOAT32,
                     .itemsize = itemsize,
                     .row_axes = 2,
                     .row_lengths = {SAMPLES, PLACES},
                     .row_strides = {cols * PLACES * itemsize, itemsize},
                     .col_axes = 1,
                     .col_lengths = {cols},
                     .col_strides = {PLACES * itemsize}};
}
static ln_view view_parameter(void *data, int is_f64, ptrdiff_t cols) {
    ln_view view = view_across(data, is_f64, cols);
    view.row_strides[0] = view.row_strides[1] = 0;
    view.col_strides[0] = view.itemsize;
    return view;
}

/* Rows across their columns, forward and backward, of which one lies far off. */
static void run_across(int norm, int is_f64, ptrdiff_t cols, double scale, int far) {
    const ln_rows *kernels = ln_rows_of(norm, is_f64 ? LN_FLOAT64 : LN_FLOAT32);
    const ptrdiff_t rows = SAMPLES * PLACES;
    const int itemsize = is_f64 ? 8 : 4;
    const size_t row = (size_t)cols, count = (size_t)rows * row, size = (size_t)itemsize;
    void *x = room(count * size), *dy = room(count * size), *out = room(count * size), *weight = room(row * size),
         *bias = room(row * size);
    double *sums = room((size_t)kernels->planes * row * 8), statistics[2][SAMPLES * PLACES] = {{0}};
    for (size_t i = 0; i < count; ++i) {
        set(x, is_f64, i, (draw() + (i % PLACES == 3 ? 1e5 : 0)) * scale);
        set(dy, is_f64, i, draw());
    }
    for (size_t i = 0; i < row; ++i) {
        set(weight, is_f64, i, draw());
        set(bias, is_f64, i, draw());
    }
    const ptrdiff_t block = ln_block_rows(cols * itemsize, itemsize, 1), back = ln_backward_rows(cols * itemsize, itemsize, 1);
    char *memory = room(ln_room(block > back ? block : back, cols * itemsize) + 64);
    char *aligned = memory + (64 - (uintptr_t)memory % 64) % 64;
    const ln_forward_plan forward = {.x = view_across(x, is_f64, cols),
                                     .weight = view_parameter(weight, is_f64, cols),
                                     .bias = view_parameter(bias, is_f64, cols),
                                     .rows = rows,
                                     .cols = cols,
                                     .block = block,
                                     .eps = 1e-5,
                                     .far = far,
                                     .y = view_across(out, is_f64, cols),
                                     .mean = statistics[0],
                                     .rstd = statistics[1]};
    kernels->forward_views(&forward, 0, rows, aligned);
    add(out, count * size);
    add(statistics, sizeof statistics);
    const ln_backward_plan backward = {.x = forward.x,
                                       .dy = view_across(dy, is_f64, cols),
                                       .weight = forward.weight,
                                       .mean = statistics[0],
                                       .rstd = statistics[1],
                                       .rows = rows,
                                       .cols = cols,
                                       .block = back,
                                       .far = far,
                                       .dx = forward.y};
    kernels->backward_views(&backward, 0, rows, aligned, sums);
    add(out, count * size);
    kernels->fold(sums, 1, 0, cols, cols, weight, bias);
    add(weight, row * size);
    add(bias, row * size);
    void *all[] = {x, dy, out, weight, bias, sums, memory};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        free(all[i]);
}

static ln_view view_rows(void *data, int dtype, int itemsize, ptrdiff_t rows, ptrdiff_t cols, int alike) {
    return (ln_view){.data = data,
                     .dtype = dtype,
                     .itemsize = itemsize,
                     .row_axes = 1,
                     .row_lengths = {rows},
                     .row_strides = {alike ? 0 : cols * itemsize},
                     .col_axes = 1,
                     .col_lengths = {cols},
                     .col_strides = {itemsize}};
}

/* Rows of a half type side by side, forward and backward, as many as make a group, a strip and a rest; one is constant, and with a scale that
 * is one or huge some go the exact way. */
static void run_half(int norm, int dtype, ptrdiff_t cols, double scale, int far) {
    enum { HALVES = 15 };
    const ln_rows *kernels = ln_rows_of(norm, LN_FLOAT32);
    const size_t row = (size_t)cols, count = HALVES * row;
    uint16_t *x = room(count * 2), *dy = room(count * 2), *out = room(count * 2);
    float *weight = room(row * 4), *bias = room(row * 4);
    double *sums = room((size_t)kernels->planes * row * 8), statistics[2][HALVES] = {{0}};
    for (size_t i = 0; i < count; ++i) {
        x[i] = cut_to_half(dtype, i / row == 3 ? 1000 : (float)(draw() * scale));
        dy[i] = cut_to_half(dtype, (float)draw());
    }
    for (size_t i = 0; i < row; ++i) {
        set(weight, 0, i, draw());
        set(bias, 0, i, draw());
    }
    const ptrdiff_t block = ln_block_rows(cols * 4, 4, 0), back = ln_backward_rows(cols * 4, 4, 0);
    char *memory = room(ln_room(block > back ? block : back, cols * 4) + 64);
    char *aligned = memory + (64 - (uintptr_t)memory % 64) % 64;
    const ln_forward_plan forward = {.x = view_rows(x, dtype, 2, HALVES, cols, 0),
                                     .weight = view_rows(weight, LN_FLOAT32, 4, HALVES, cols, 1),
                                     .bias = view_rows(bias, LN_FLOAT32, 4, HALVES, cols, 1),
                                     .rows = HALVES,
                                     .cols = cols,
                                     .block = block,
                                     .eps = 1e-5,
                                     .far = far,
                                     .y = view_rows(out, dtype, 2, HALVES, cols, 0),
                                     .mean = statistics[0],
                                     .rstd = statistics[1]};
    kernels->forward_views(&forward, 0, HALVES, aligned);
    add(out, count * 2);
    add(statistics, sizeof statistics);
    const ln_backward_plan backward = {.x = forward.x,
                                       .dy = view_rows(dy, dtype, 2, HALVES, cols, 0),
                                       .weight = forward.weight,
                                       .mean = statistics[0],
                                       .rstd = statistics[1],
                                       .rows = HALVES,
                                       .cols = cols,
                                       .block = back,
                                       .far = far,
                                       .dx = forward.y};
    kernels->backward_views(&backward, 0, HALVES, aligned, sums);
    add(out, count * 2);
    kernels->fold(sums, 1, 0, cols, cols, weight, bias);
    add(weight, row * 4);
    add(bias, row * 4);
    void *all[] = {x, dy, out, weight, bias, sums, memory};
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
                for (int s = 0; s < SCALES; ++s) {
                    const int far = (int)(i + (size_t)s) % (LN_IN_MEMORY + 1);
                    run(kind / 2, kind % 2, lengths[i], scales[s], far);
                    run_across(kind / 2, kind % 2, lengths[i], scales[s], far);
                    run_half(kind / 2, kind % 2 ? LN_BFLOAT16 : LN_FLOAT16, lengths[i], scales[s], far);
                }
        for (int is_f64 = 0; is_f64 < 2; ++is_f64)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i)
                for (int s = 0; s < SCALES; ++s)
                    run_pieces(is_f64, lengths[i], scales[s], (int)(i + (size_t)s) % (LN_IN_MEMORY + 1));
        printf("%016" PRIx64 " %s\n", digest, ln_isa());
    }
    return 0;
}

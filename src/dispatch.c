/* dispatch.c: which instruction set. Knows CPUs. Does not know rows, threads, Python. */
#include "kernels.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

extern const ln_rows ln_rows_f32_baseline[], ln_rows_f64_baseline[];
#if defined(__x86_64__)
extern const ln_rows ln_rows_f32_avx2[], ln_rows_f64_avx2[];
extern const ln_rows ln_rows_f32_avx512[], ln_rows_f64_avx512[];

/* Conversions of float16; not every compiler knows that by name. */
static int has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
static int has_avx512(void) { return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"); }
#define BASELINE "baseline"
#elif defined(__aarch64__)
#define BASELINE "neon"
#else
#define BASELINE "baseline"
#endif
static int always(void) { return 1; }

/* Best first. */
static const struct {
    const char *name;
    int (*runs_here)(void);
    const ln_rows *tables[LN_DTYPES]; /* each of LN_NORMS */
} isas[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, {ln_rows_f32_avx512, ln_rows_f64_avx512}},
    {"avx2", has_avx2, {ln_rows_f32_avx2, ln_rows_f64_avx2}},
#endif
    {BASELINE, always, {ln_rows_f32_baseline, ln_rows_f64_baseline}},
};
enum { COUNT = sizeof isas / sizeof *isas };

static int chosen = COUNT - 1;

int ln_choose(const char *name) {
    for (int i = 0; i < COUNT; ++i) {
        if (!isas[i].runs_here()) continue;
        if (name && *name && strcmp(name, isas[i].name) != 0) continue;
        chosen = i;
        return 0;
    }
    return -1;
}

const char *ln_isa(void) { return isas[chosen].name; }

const char *ln_isa_at(int i) {
    for (int k = 0; k < COUNT; ++k)
        if (isas[k].runs_here() && i-- == 0) return isas[k].name;
    return NULL;
}

const ln_rows *ln_rows_of(int norm, int dtype) { return &isas[chosen].tables[dtype][norm]; }

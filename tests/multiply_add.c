/* multiply_add.c: float64's a · b + c of the baseline target, for tests/test_multiply_add.py. */
#include "rows/target_baseline.h"

#include "rows/real_f64.h"

/* result: out (n,); n a multiple of the register's lanes */
void multiply_adds(long n, const double *a, const double *b, const double *c, double *result) {
    for (long i = 0; i < n; i += WD)
        store_d(result + i, multiply_add_d(load_d(a + i), load_d(b + i), load_d(c + i)));
}

#include "rows/target_end.h"

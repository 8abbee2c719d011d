"""The pieces that layer norm splits into, and its derivatives: from plain operands to pointers, and prange over rows or blocks of
rows. See kernels.h.

What the operands mean, and whether they fit, is for lnfast._pieces and lnfast._tangents to know. Here they are looked at once more:
a finalizer or another thread may have resized them since. From there to the kernels no Python runs.
"""
cimport numpy as cnp
from call cimport raise_changed
from cython.parallel cimport prange
from kernels cimport (
    LN_BACKWARD_SUMS, LN_DOUBLE_BACKWARD, LN_FLOAT32, LN_FLOAT64, LN_LAYER_NORM, LN_PIECES, ln_operands, ln_rows, ln_rows_of,
    plan_far, plan_rows, plan_task,
)
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from plain cimport PyArray_DATA, is_plain
from threads cimport plan_threads


cdef inline int run_piece(int piece, int num_threads, dict operands) except -1:
    """One piece; its results are among its operands."""
    cdef ln_operands a
    cdef const ln_rows *kernels
    cdef cnp.ndarray x
    cdef Py_ssize_t rows
    cdef void *dweight
    cdef void *dbias
    cdef int dtype, failed, itemsize
    if not 0 <= piece < LN_PIECES or not is_plain(operands["x"]):
        raise_changed()
    x = <cnp.ndarray> operands["x"]
    if cnp.PyArray_NDIM(x) != 2:
        raise_changed()
    rows, dtype, itemsize = cnp.PyArray_DIM(x, 0), cnp.PyArray_TYPE(x), cnp.PyArray_ITEMSIZE(x)
    memset(&a, 0, sizeof(a))
    a.cols = cnp.PyArray_DIM(x, 1)
    a.far = plan_far(3 * rows * a.cols * itemsize)
    a.x = PyArray_DATA(x)
    a.dy = elements(operands, "dy", rows * a.cols, dtype)
    a.weight = elements(operands, "weight", a.cols, dtype)
    a.bias = elements(operands, "bias", a.cols, dtype)
    a.ddx = elements(operands, "ddx", rows * a.cols, dtype)
    a.ddweight = elements(operands, "ddweight", a.cols, dtype)
    a.ddbias = elements(operands, "ddbias", a.cols, dtype)
    a.shift = <double *> elements(operands, "shift", rows, cnp.NPY_FLOAT64)
    a.count = <double *> elements(operands, "count", rows, cnp.NPY_FLOAT64)
    a.rstd = <double *> elements(operands, "rstd", rows, cnp.NPY_FLOAT64)
    a.mean = <double *> elements(operands, "mean", rows, cnp.NPY_FLOAT64)
    a.m2 = <double *> elements(operands, "m2", rows, cnp.NPY_FLOAT64)
    a.sum_h = <double *> elements(operands, "sum_h", rows, cnp.NPY_FLOAT64)
    a.sum_h_xhat = <double *> elements(operands, "sum_h_xhat", rows, cnp.NPY_FLOAT64)
    a.out = elements(operands, "out", rows * a.cols, dtype)
    a.gx = elements(operands, "gx", rows * a.cols, dtype)
    dweight = elements(operands, "gweight" if piece == LN_DOUBLE_BACKWARD else "dweight", a.cols, dtype)
    dbias = elements(operands, "dbias", a.cols, dtype)
    kernels = ln_rows_of(LN_LAYER_NORM, LN_FLOAT32 if dtype == cnp.NPY_FLOAT32 else LN_FLOAT64)
    if rows == 0 or a.cols == 0:
        return 0
    with nogil:
        if piece == LN_BACKWARD_SUMS or piece == LN_DOUBLE_BACKWARD:
            failed = run_blocks_of_piece(kernels, piece, &a, rows, num_threads, dweight, dbias)
        else:
            failed = 0
            run_rows_of_piece(kernels, piece, &a, rows, num_threads)
    if failed:
        raise MemoryError("no memory for the sums of the rows")
    return 0


cdef inline void *elements(dict operands, str name, Py_ssize_t size, int dtype) except? NULL:
    """Those of an operand that is plain and of this size and dtype; NULL where there is none."""
    cdef object array = operands.get(name)
    if array is None:
        return NULL
    if not is_plain(array) or cnp.PyArray_TYPE(<cnp.ndarray> array) != dtype or cnp.PyArray_SIZE(<cnp.ndarray> array) != size:
        raise_changed()
    return PyArray_DATA(<cnp.ndarray> array)


cdef inline void run_rows_of_piece(const ln_rows *kernels, int piece, const ln_operands *a, Py_ssize_t rows,
                                   int asked) noexcept nogil:
    """Row by row: how they are dealt out does not show."""
    cdef Py_ssize_t task, tasks, each
    cdef int threads = plan_threads(rows * a.cols, asked)
    if threads == 1:
        kernels.pieces[piece](a, 0, rows, NULL)
        return
    each = plan_task(rows, a.cols, threads, 1)
    tasks = (rows + each - 1) // each
    threads = <int>min(<Py_ssize_t>threads, tasks)
    for task in prange(tasks, schedule="dynamic", num_threads=threads):
        kernels.pieces[piece](a, task * each, min(rows, (task + 1) * each), NULL)


cdef inline int run_blocks_of_piece(const ln_rows *kernels, int piece, const ln_operands *a, Py_ssize_t rows, int asked,
                                    void *dweight, void *dbias) noexcept nogil:
    """By the blocks of the backward pass, whose sums are then folded; -1 where these find no memory, and nothing was written."""
    cdef Py_ssize_t block, plane = kernels.planes * a.cols, each = plan_rows(rows, a.cols, kernels.planes)
    cdef Py_ssize_t blocks = (rows + each - 1) // each
    cdef int threads = <int>min(<Py_ssize_t>plan_threads(rows * a.cols, asked), blocks)
    cdef double *sums = <double *>malloc(blocks * plane * sizeof(double))
    if sums == NULL:
        return -1
    if threads == 1:
        for block in range(blocks):
            kernels.pieces[piece](a, block * each, min(rows, (block + 1) * each), sums + block * plane)
    else:
        for block in prange(blocks, schedule="dynamic", num_threads=threads):
            kernels.pieces[piece](a, block * each, min(rows, (block + 1) * each), sums + block * plane)
    kernels.fold(sums, blocks, 0, a.cols, a.cols, dweight, dbias)
    free(sums)
    return 0

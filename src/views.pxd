"""The Cython kernels over views: plans of arrays with any strides, and prange over their rows. Knows OpenMP and strides.

What kernels.pxd says of threads and bits holds here: work is split by shape, and a row has the bits that it has in a plain array.
"""
cimport numpy as cnp
from cython.parallel cimport prange, threadid
from kernels cimport (
    LN_BFLOAT16, LN_FLOAT16, LN_FLOAT32, LN_FLOAT64, LN_IN_MEMORY, LN_LINE_BYTES, LONG_BLOCK_BYTES, LONG_BYTES, ROWS_PER_BLOCK,
    ln_backward_plan, ln_backward_rows, ln_block_rows, ln_forward_plan, ln_has_plain_rows, ln_is_plain, ln_room, ln_rows,
    ln_runs_across, ln_view, plan_far, plan_rows, plan_task,
)
from libc.stdlib cimport free, malloc
from plain cimport PyArray_DATA
from threads cimport plan_threads


cdef inline void look_at(ln_view *view, object array, cnp.ndarray x, const int *order, int count, bint parameter=False) noexcept:
    """An array, None (not there) or one that broadcasts to x, with x's axes in this order, the last `count` of them the columns.

    A parameter of no more than `count` axes has just those. No axis is empty.
    """
    cdef int ndim = cnp.PyArray_NDIM(x)
    cdef int lead = ndim - count
    cdef cnp.ndarray a
    view.data = NULL
    if array is None:
        return
    a = <cnp.ndarray> array
    view.data = <char *> PyArray_DATA(a)
    view.itemsize = <int> cnp.PyArray_ITEMSIZE(a)
    view.dtype = dtype_of(a)
    cdef Py_ssize_t strides[64]
    stretch(a, x, order, count if parameter and cnp.PyArray_NDIM(a) == count else 0, strides)
    view.row_axes = merge_axes(x, order, 0, lead, strides, view.row_lengths, view.row_strides)
    view.col_axes = merge_axes(x, order, lead, ndim, strides, view.col_lengths, view.col_strides)
    if view.row_axes == 0:
        view.row_axes = view.row_lengths[0] = 1
        view.row_strides[0] = view.itemsize
        for axis in range(lead, ndim):
            view.row_strides[0] *= cnp.PyArray_DIM(x, order[axis])
    if view.col_axes == 0:
        view.col_axes = view.col_lengths[0] = 1
        view.col_strides[0] = view.itemsize


cdef inline void stretch(cnp.ndarray a, cnp.ndarray x, const int *order, int only, Py_ssize_t *strides) noexcept:
    """The strides of a along x's axes, in their order: 0 where it is broadcast. only: it has just the last so many of them."""
    cdef int i, axis, ndim = cnp.PyArray_NDIM(x), own = cnp.PyArray_NDIM(a)
    for i in range(ndim):
        axis = i - (ndim - only) if only else order[i] - (ndim - own)
        strides[i] = 0
        if axis >= 0 and (cnp.PyArray_DIM(a, axis) != 1 or cnp.PyArray_DIM(x, order[i]) == 1):
            strides[i] = cnp.PyArray_STRIDE(a, axis)


cdef inline void look_at_rows(ln_view *view, void *data, int dtype, int itemsize, Py_ssize_t rows, Py_ssize_t cols,
                              Py_ssize_t pitch) noexcept nogil:
    """Rows of contiguous columns, `pitch` bytes apart; NULL: not there."""
    view.data = <char *> data
    view.dtype, view.itemsize = dtype, itemsize
    view.row_axes = view.col_axes = 1
    view.row_lengths[0], view.row_strides[0] = rows, pitch
    view.col_lengths[0], view.col_strides[0] = cols, itemsize


cdef inline int dtype_of(cnp.ndarray a) noexcept:
    """Of a view; for a mask it means nothing."""
    cdef int number = cnp.PyArray_TYPE(a)
    if number == cnp.NPY_FLOAT32:
        return LN_FLOAT32
    if number == cnp.NPY_FLOAT64:
        return LN_FLOAT64
    return LN_FLOAT16 if number == cnp.NPY_FLOAT16 else LN_BFLOAT16


cdef inline int merge_axes(cnp.ndarray x, const int *order, int first, int last, const Py_ssize_t *strides, Py_ssize_t *to_lengths,
                           Py_ssize_t *to_strides) noexcept:
    """Lengths and strides of these axes, those of length 1 left out, neighbours that lie like one made one; how many are left."""
    cdef int i, count = 0
    cdef Py_ssize_t length, stride
    for i in range(first, last):
        length, stride = cnp.PyArray_DIM(x, order[i]), strides[i]
        if length == 1:
            continue
        if count and to_strides[count - 1] == length * stride:
            to_lengths[count - 1] *= length
            to_strides[count - 1] = stride
        else:
            to_lengths[count], to_strides[count] = length, stride
            count += 1
    return count


cdef inline char *align(void *room) noexcept nogil:
    return <char *> ((<size_t> room + 63) // 64 * 64)


cdef inline size_t whole_lines(size_t size) noexcept nogil:
    return (size + 63) // 64 * 64


cdef inline int run_forward_views(const ln_rows *kernels, ln_forward_plan *plan, int asked, int itemsize) noexcept nogil:
    """y, sum, mean and rstd of all rows; -1 where there is no memory to gather them in, and nothing was written."""
    cdef Py_ssize_t rows = plan.rows, size = plan.cols * itemsize, each, tasks, task
    cdef int across = (ln_runs_across(&plan.x) or ln_runs_across(&plan.residual) or ln_runs_across(&plan.sum)
                       or ln_runs_across(&plan.y))
    cdef int threads = plan_threads(rows * plan.cols, asked)
    cdef size_t space
    cdef void *memory
    cdef char *room
    plan.far = plan_far(rows * plan.cols * plan.x.itemsize * (4 if plan.residual.data != NULL else 2))
    plan.block = ln_block_rows(size, itemsize, across)
    if not across:  # which may take a whole line's, there or not
        plan.block = min(rows, plan.block)
    each = rows if threads == 1 else plan_task(rows, plan.cols, threads, LN_LINE_BYTES // itemsize if across else plan.block)
    tasks = (rows + each - 1) // each
    threads = <int>min(<Py_ssize_t>threads, tasks)
    space = 0 if needs_no_room(plan, itemsize) else whole_lines(ln_room(plan.block, size))
    memory = malloc(threads * space + 64) if space else NULL
    if memory == NULL and space:
        return -1
    room = align(memory)
    if threads == 1:
        kernels.forward_views(plan, 0, rows, room)
    else:
        for task in prange(tasks, schedule="dynamic", num_threads=threads):
            kernels.forward_views(plan, task * each, min(rows, (task + 1) * each), room + threadid() * space)
    free(memory)
    return 0


cdef inline bint needs_no_room(const ln_forward_plan *plan, int itemsize) noexcept nogil:
    """Plain arrays are added where the sum is to lie, unless that is past the caches."""
    return (plan.mask.data == NULL and plan.far != LN_IN_MEMORY and ln_is_plain(&plan.x, plan.cols, itemsize)
            and ln_is_plain(&plan.sum, plan.cols, itemsize) and ln_is_plain(&plan.y, plan.cols, itemsize)
            and ln_has_plain_rows(&plan.residual, itemsize) and ln_has_plain_rows(&plan.weight, itemsize)
            and ln_has_plain_rows(&plan.bias, itemsize))


cdef inline int run_backward_views(const ln_rows *kernels, ln_backward_plan *plan, Py_ssize_t alike, int asked, int itemsize,
                                   void *dweight, void *dbias) noexcept nogil:
    """dx, and dweight and dbias of each `alike` rows, (rows / alike, cols); each may be NULL. -1 where there is no memory for the
    blocks' sums or the rows that are gathered, and nothing was written."""
    cdef Py_ssize_t rows = plan.rows, cols = plan.cols
    cdef Py_ssize_t size = cols * itemsize, plane = kernels.planes * cols
    cdef int across = (ln_runs_across(&plan.x) or ln_runs_across(&plan.dy) or ln_runs_across(&plan.ds)
                       or ln_runs_across(&plan.dx))
    cdef int threads = plan_threads(rows * cols, asked), wanted = dweight != NULL or dbias != NULL
    cdef Py_ssize_t each, blocks, samples = rows // alike, task
    cdef size_t space, sums_size
    cdef double *sums
    cdef void *memory
    cdef char *room
    plan.far = plan_far(rows * cols * plan.x.itemsize * (4 if plan.ds.data != NULL else 3))
    plan.block = ln_backward_rows(size, itemsize, across)
    # the blocks, and with them the bits, of a plain array: one where that would go by columns
    each = plan_rows(alike, cols, kernels.planes)
    if size >= (LONG_BLOCK_BYTES if alike <= ROWS_PER_BLOCK else LONG_BYTES):
        each = alike
    blocks = (alike + each - 1) // each
    threads = <int>min(<Py_ssize_t>threads, samples * blocks)
    space = whole_lines(ln_room(plan.block, size))
    # the sums of all blocks of a sample; or of one block for each thread, where a sample is one block
    sums_size = plane * sizeof(double) if wanted else 0
    memory = malloc(threads * space + (threads if blocks == 1 else blocks) * sums_size + 64)
    if memory == NULL:
        return -1
    room = align(memory)
    sums = <double *> (room + threads * space)
    if blocks > 1:
        for task in range(samples):
            run_sample(kernels, plan, task * alike, alike, each, threads, room, space, sums if wanted else NULL,
                       offset(dweight, task * size), offset(dbias, task * size))
    elif threads == 1:
        for task in range(samples):
            run_block(kernels, plan, task * alike, (task + 1) * alike, room, sums if wanted else NULL,
                      offset(dweight, task * size), offset(dbias, task * size))
    else:
        for task in prange(samples, schedule="dynamic", num_threads=threads):
            run_block(kernels, plan, task * alike, (task + 1) * alike, room + threadid() * space,
                      sums + threadid() * plane if wanted else NULL, offset(dweight, task * size), offset(dbias, task * size))
    free(memory)
    return 0


cdef inline void run_sample(const ln_rows *kernels, const ln_backward_plan *plan, Py_ssize_t first, Py_ssize_t rows,
                            Py_ssize_t each, int threads, char *room, size_t space, double *sums, void *dweight,
                            void *dbias) noexcept nogil:
    """Rows of one weight, in several blocks."""
    cdef Py_ssize_t cols = plan.cols, blocks = (rows + each - 1) // each, plane = kernels.planes * cols, task
    if threads == 1:
        for task in range(blocks):
            kernels.backward_views(plan, first + task * each, first + min(rows, (task + 1) * each), room,
                                   sums + task * plane if sums != NULL else NULL)
    else:
        for task in prange(blocks, schedule="dynamic", num_threads=threads):
            kernels.backward_views(plan, first + task * each, first + min(rows, (task + 1) * each), room + threadid() * space,
                                   sums + task * plane if sums != NULL else NULL)
    if sums != NULL:
        kernels.fold(sums, blocks, 0, cols, cols, dweight, dbias)


cdef inline void run_block(const ln_rows *kernels, const ln_backward_plan *plan, Py_ssize_t first, Py_ssize_t last, char *room,
                           double *sums, void *dweight, void *dbias) noexcept nogil:
    """Rows of one weight, in one block."""
    kernels.backward_views(plan, first, last, room, sums)
    if sums != NULL:
        kernels.fold(sums, 1, 0, plan.cols, plan.cols, dweight, dbias)


cdef inline void *offset(void *p, Py_ssize_t size) noexcept nogil:
    return <char *> p + size if p != NULL else NULL

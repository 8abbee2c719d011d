"""One call over views: from the arrays of lnfast._layouts to a plan, and into the kernels. Knows shapes, not what is wrong."""
cimport numpy as cnp
from call cimport RELEASE_ELEMENTS, Call
from kernels cimport LN_FLOAT32, LN_FLOAT64, fill, ln_backward_plan, ln_forward_plan, ln_rows, ln_rows_of
from libc.math cimport NAN
from plain cimport PyArray_DATA
from views cimport look_at, look_at_rows, run_backward_views, run_forward_views


cdef inline void *data_of(object a) noexcept:
    return NULL if a is None else PyArray_DATA(<cnp.ndarray> a)


cdef inline const ln_rows *kernels_of(int norm, object x, int *itemsize) noexcept:
    """Those that compute for x; and the size of what they compute in: float32 for what is narrower."""
    cdef bint double = cnp.PyArray_TYPE(<cnp.ndarray> x) == cnp.NPY_FLOAT64
    itemsize[0] = 8 if double else 4
    return ln_rows_of(norm, LN_FLOAT64 if double else LN_FLOAT32)


cdef inline void count(object x, int axes, Py_ssize_t *rows, Py_ssize_t *cols) noexcept:
    """Rows and columns of x, whose last `axes` axes are a row."""
    cdef int axis, ndim = cnp.PyArray_NDIM(<cnp.ndarray> x)
    rows[0] = cols[0] = 1
    for axis in range(ndim):
        if axis < ndim - axes:
            rows[0] *= cnp.PyArray_DIM(<cnp.ndarray> x, axis)
        else:
            cols[0] *= cnp.PyArray_DIM(<cnp.ndarray> x, axis)


cdef inline int call_forward_views(int norm, object views, int axes, double eps, int threads, object mean, object rstd) except -1:
    """views: _layouts.ForwardViews. mean and rstd: plain float64 arrays of as many elements as there are rows, or None."""
    cdef ln_forward_plan plan
    cdef int itemsize, failed
    cdef const ln_rows *kernels = kernels_of(norm, views.x, &itemsize)
    count(views.x, axes, &plan.rows, &plan.cols)
    plan.eps = eps
    plan.mean, plan.rstd = <double *> data_of(mean), <double *> data_of(rstd)
    if plan.rows == 0 or plan.cols == 0:
        fill(plan.mean, plan.rows, NAN)
        fill(plan.rstd, plan.rows, NAN)
        return 0
    look_at(&plan.x, views.x, axes)
    look_at(&plan.residual, views.residual, axes)
    look_at(&plan.mask, views.mask, axes)
    look_at(&plan.weight, views.weight, axes)
    look_at(&plan.bias, views.bias, axes)
    look_at(&plan.sum, views.sum, axes)
    look_at(&plan.y, views.y, axes)
    with nogil:
        failed = run_forward_views(kernels, &plan, threads, itemsize)
    if failed:
        raise MemoryError("no memory to gather rows in")
    return 0


cdef inline int call_backward_views(int norm, object views, int axes, int threads) except -1:
    """views: _layouts.BackwardViews."""
    cdef ln_backward_plan plan
    cdef int itemsize, failed
    cdef Py_ssize_t alike = views.alike
    cdef void *dweight = data_of(views.dweight)
    cdef void *dbias = data_of(views.dbias)
    cdef const ln_rows *kernels = kernels_of(norm, views.x, &itemsize)
    count(views.x, axes, &plan.rows, &plan.cols)
    if plan.rows == 0 or plan.cols == 0:
        for sums in (views.dweight, views.dbias):
            if sums is not None:
                sums[...] = 0
        return 0
    look_at(&plan.x, views.x, axes)
    look_at(&plan.dy, views.dy, axes)
    look_at(&plan.mask, views.mask, axes)
    look_at(&plan.weight, views.weight, axes)
    look_at(&plan.ds, views.ds, axes)
    look_at(&plan.dx, views.dx, axes)
    plan.mean, plan.rstd = <double *> data_of(views.mean), <double *> data_of(views.rstd)
    with nogil:
        failed = run_backward_views(kernels, &plan, alike, threads, itemsize, dweight, dbias)
    if failed:
        raise MemoryError("no memory for the sums of the rows, or to gather them in")
    return 0


cdef inline int call_add(Call *c, void *residual, void *total, void *y, double *mean, double *rstd) except -1:
    """x + residual and its norm, of plain arrays of one shape."""
    cdef ln_forward_plan plan
    cdef int failed
    cdef int dtype = LN_FLOAT64 if c.itemsize == 8 else LN_FLOAT32
    cdef Py_ssize_t pitch = c.cols * c.itemsize
    plan.rows, plan.cols, plan.eps = c.rows, c.cols, c.eps
    plan.mean, plan.rstd = mean, rstd
    if c.rows == 0 or c.cols == 0:
        fill(mean, c.rows, NAN)
        fill(rstd, c.rows, NAN)
        return 0
    look_at_rows(&plan.x, c.x, dtype, c.itemsize, c.rows, c.cols, pitch)
    look_at_rows(&plan.residual, residual, dtype, c.itemsize, c.rows, c.cols, pitch)
    look_at_rows(&plan.weight, c.weight, dtype, c.itemsize, c.rows, c.cols, 0)
    look_at_rows(&plan.bias, c.bias, dtype, c.itemsize, c.rows, c.cols, 0)
    look_at_rows(&plan.sum, total, dtype, c.itemsize, c.rows, c.cols, pitch)
    look_at_rows(&plan.y, y, dtype, c.itemsize, c.rows, c.cols, pitch)
    plan.mask.data = NULL
    if c.rows * c.cols < RELEASE_ELEMENTS:
        failed = run_forward_views(c.kernels, &plan, c.threads, c.itemsize)
    else:
        with nogil:
            failed = run_forward_views(c.kernels, &plan, c.threads, c.itemsize)
    if failed:
        raise MemoryError("no memory to gather rows in")
    return 0

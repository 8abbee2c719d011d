"""One call over views: from steady arrays (steady.pxd) to a plan, and into the kernels. Knows shapes, not what is wrong."""
cimport numpy as cnp
from call cimport RELEASE_ELEMENTS, Call
from kernels cimport LN_FLOAT32, LN_FLOAT64, fill, ln_backward_plan, ln_forward_plan, ln_rows, ln_rows_of
from libc.math cimport NAN
from plain cimport PyArray_DATA
from steady cimport Order
from views cimport look_at, look_at_rows, run_backward_views, run_forward_views

cdef inline void *data_of(object a) noexcept:
    return NULL if a is None else PyArray_DATA(<cnp.ndarray> a)


cdef inline int itemsize_of(object x) noexcept:
    """Of what is computed in: float32 for what is narrower."""
    return 8 if cnp.PyArray_TYPE(<cnp.ndarray> x) == cnp.NPY_FLOAT64 else 4


cdef inline const ln_rows *kernels_of(int norm, object x) noexcept:
    return ln_rows_of(norm, LN_FLOAT64 if itemsize_of(x) == 8 else LN_FLOAT32)


cdef inline int call_forward_views(int norm, const Order *order, object x, object residual, object mask, object weight, object bias,
                                   object total, object y, double eps, int threads, object mean, object rstd) except -1:
    """Of steady arrays that broadcast to x; weight and bias in its dtype or in what is computed in; mean and rstd: plain."""
    cdef ln_forward_plan plan
    plan.rows, plan.cols, plan.eps = order.rows, order.cols, eps
    plan.mean, plan.rstd = <double *> data_of(mean), <double *> data_of(rstd)
    if plan.rows == 0 or plan.cols == 0:
        fill(plan.mean, plan.rows, NAN)
        fill(plan.rstd, plan.rows, NAN)
        return 0
    look_at(&plan.x, x, <cnp.ndarray> x, order.axes, order.count)
    look_at(&plan.residual, residual, <cnp.ndarray> x, order.axes, order.count)
    look_at(&plan.mask, mask, <cnp.ndarray> x, order.axes, order.count)
    look_at(&plan.weight, weight, <cnp.ndarray> x, order.axes, order.count, True)
    look_at(&plan.bias, bias, <cnp.ndarray> x, order.axes, order.count, True)
    look_at(&plan.sum, total, <cnp.ndarray> x, order.axes, order.count)
    look_at(&plan.y, y, <cnp.ndarray> x, order.axes, order.count)
    return run_forward_plan(kernels_of(norm, x), &plan, threads, itemsize_of(x))


cdef inline int run_forward_plan(const ln_rows *kernels, ln_forward_plan *plan, int threads, int itemsize) except -1:
    cdef int failed
    if plan.rows * plan.cols < RELEASE_ELEMENTS:
        failed = run_forward_views(kernels, plan, threads, itemsize)
    else:
        with nogil:
            failed = run_forward_views(kernels, plan, threads, itemsize)
    if failed:
        raise MemoryError("no memory to gather rows in")
    return 0


cdef inline int call_backward_views(int norm, const Order *order, Py_ssize_t alike, object x, object dy, object mask, object weight,
                                    object ds, object mean, object rstd, int threads, object dx, object dweight,
                                    object dbias) except -1:
    """The same; each `alike` rows share a weight, and give a row of dweight and dbias: plain arrays of what is computed in."""
    cdef ln_backward_plan plan
    cdef int failed, itemsize = itemsize_of(x)
    cdef void *to_dweight = data_of(dweight)
    cdef void *to_dbias = data_of(dbias)
    cdef const ln_rows *kernels = kernels_of(norm, x)
    plan.rows, plan.cols = order.rows, order.cols
    if plan.rows == 0 or plan.cols == 0:
        for sums in (dweight, dbias):
            if sums is not None:
                sums[...] = 0
        return 0
    look_at(&plan.x, x, <cnp.ndarray> x, order.axes, order.count)
    look_at(&plan.dy, dy, <cnp.ndarray> x, order.axes, order.count)
    look_at(&plan.mask, mask, <cnp.ndarray> x, order.axes, order.count)
    look_at(&plan.weight, weight, <cnp.ndarray> x, order.axes, order.count, True)
    look_at(&plan.ds, ds, <cnp.ndarray> x, order.axes, order.count)
    look_at(&plan.dx, dx, <cnp.ndarray> x, order.axes, order.count)
    plan.mean, plan.rstd = <double *> data_of(mean), <double *> data_of(rstd)
    if plan.rows * plan.cols < RELEASE_ELEMENTS:
        failed = run_backward_views(kernels, &plan, alike, threads, itemsize, to_dweight, to_dbias)
    else:
        with nogil:
            failed = run_backward_views(kernels, &plan, alike, threads, itemsize, to_dweight, to_dbias)
    if failed:
        raise MemoryError("no memory for the sums of the rows, or to gather them in")
    return 0


cdef inline int call_add(Call *c, void *residual, void *total, void *y, double *mean, double *rstd) except -1:
    """x + residual and its norm, of plain arrays of one shape."""
    cdef ln_forward_plan plan
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
    return run_forward_plan(c.kernels, &plan, c.threads, c.itemsize)

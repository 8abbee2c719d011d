"""One call: from arguments to rows, columns, pointers and kernels, and into these. Knows shapes. Does not know what is wrong."""
cimport numpy as cnp
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from kernels cimport LN_FLOAT32, LN_FLOAT64, LN_LAYER_NORM, ln_rows, ln_rows_of, run_backward, run_forward
from plain cimport PyArray_DATA, is_like, is_parameter, is_plain, is_plain_out, is_statistic, plain_axes

# Elements from which a call lets other Python threads run while it computes: below it, handing over would cost more.
cdef enum:
    RELEASE_ELEMENTS = 4096


# Everything the kernels need of one call.
cdef struct Call:
    const ln_rows *kernels
    void *x
    void *weight
    void *bias
    Py_ssize_t rows
    Py_ssize_t cols
    double eps
    int threads
    int itemsize


cdef inline int plan_plain(int norm, object x, object normalized_shape, object weight, object bias, object eps,
                           Call *call) noexcept:
    """Fill in `call`, but for its threads, and return the number of normalised axes; 0 where an argument is not plain."""
    if not is_plain(x) or not PyFloat_CheckExact(eps):
        return 0
    cdef int axes = plain_axes(normalized_shape, weight, <cnp.ndarray> x)
    call.eps = PyFloat_AS_DOUBLE(eps)
    if axes == 0 or not 0 <= call.eps <= 1.7976931348623157e308:
        return 0
    if not is_parameter(weight, <cnp.ndarray> x, axes, &call.weight):
        return 0
    if not is_parameter(bias, <cnp.ndarray> x, axes, &call.bias):
        return 0
    plan_rows_of(norm, <cnp.ndarray> x, axes, call)
    return axes


cdef inline void plan_rows_of(int norm, cnp.ndarray x, int axes, Call *call) noexcept:
    """Rows, columns and kernels for x, whose last `axes` axes are a row."""
    cdef int axis, lead = cnp.PyArray_NDIM(x) - axes
    call.x = PyArray_DATA(x)
    call.rows = call.cols = 1
    for axis in range(lead):
        call.rows *= cnp.PyArray_DIM(x, axis)
    for axis in range(lead, lead + axes):
        call.cols *= cnp.PyArray_DIM(x, axis)
    if cnp.PyArray_TYPE(x) == cnp.NPY_FLOAT32:
        call.kernels = ln_rows_of(norm, LN_FLOAT32)
        call.itemsize = 4
    else:
        call.kernels = ln_rows_of(norm, LN_FLOAT64)
        call.itemsize = 8


cdef inline int plan_cache(int norm, tuple cache, Call *call) noexcept:
    """As plan_plain, for a norm's record: 0 where a field is not plain."""
    cdef int statistics = 2 if norm == LN_LAYER_NORM else 1
    if len(cache) != 5 + statistics or not is_plain(cache[0]):
        return 0
    if cache[3 + statistics] is not None or cache[4 + statistics] is not None:  # axis, mask
        return 0
    cdef cnp.ndarray x = <cnp.ndarray> cache[0]
    if type(cache[1]) is not tuple:
        return 0
    cdef int axes = plain_axes(cache[1], None, x)
    if axes == 0 or not is_parameter(cache[2], x, axes, &call.weight):
        return 0
    if not is_statistic(cache[3], x, axes) or not is_statistic(cache[2 + statistics], x, axes):
        return 0
    plan_rows_of(norm, x, axes, call)
    return axes


cdef inline double *mean_of(int norm, tuple cache) noexcept:
    """Of a plan_cache'd record; RMSNorm has none."""
    return <double *> data_or_null(cache[3]) if norm == LN_LAYER_NORM else NULL


cdef inline double *rstd_of(int norm, tuple cache) noexcept:
    return <double *> data_or_null(cache[4] if norm == LN_LAYER_NORM else cache[3])


cdef inline void call_forward(Call *c, void *y, double *mean, double *rstd) noexcept:
    if c.rows * c.cols < RELEASE_ELEMENTS:
        run_forward(c.kernels, c.x, c.weight, c.bias, c.rows, c.cols, c.eps, c.threads, c.itemsize, y, mean, rstd)
    else:
        with nogil:
            run_forward(c.kernels, c.x, c.weight, c.bias, c.rows, c.cols, c.eps, c.threads, c.itemsize, y, mean, rstd)


cdef inline int call_backward(Call *c, void *dy, double *mean, double *rstd, void *dx, void *dweight, void *dbias) except -1:
    cdef int failed
    if c.rows * c.cols < RELEASE_ELEMENTS:
        failed = run_backward(c.kernels, c.x, dy, c.weight, mean, rstd, c.rows, c.cols, c.threads, c.itemsize, dx, dweight,
                              dbias)
    else:
        with nogil:
            failed = run_backward(c.kernels, c.x, dy, c.weight, mean, rstd, c.rows, c.cols, c.threads, c.itemsize, dx, dweight,
                                  dbias)
    if failed:
        raise MemoryError("no memory for the sums and constants of the rows")
    return 0


cdef inline void *data_or_null(object a) noexcept:
    return NULL if a is None else PyArray_DATA(<cnp.ndarray> a)


# From checked arguments (_arguments.Forward or Backward) to a call, and the number of normalised axes. The arrays are looked at
# once more: a finalizer or another thread may have resized them since they were checked. From here to the kernels no Python runs.


cdef inline int plan_checked_forward(int norm, Call *call, object args) except 0:
    cdef object x = args.x, normalized_shape = args.normalized_shape
    cdef int axes = plain_axes(normalized_shape, None, <cnp.ndarray> x) if is_plain(x) else 0
    if (axes == 0 or not is_parameter(args.weight, <cnp.ndarray> x, axes, &call.weight)
            or not is_parameter(args.bias, <cnp.ndarray> x, axes, &call.bias) or not is_plain_out(args.y, <cnp.ndarray> x)):
        raise_changed()
    call.eps = args.eps
    call.threads = args.num_threads
    plan_rows_of(norm, <cnp.ndarray> x, axes, call)
    return axes


cdef inline int plan_checked_backward(int norm, Call *call, object args) except 0:
    cdef object x = args.x, normalized_shape = args.normalized_shape, mean = args.mean
    cdef int axes = plain_axes(normalized_shape, None, <cnp.ndarray> x) if is_plain(x) else 0
    if (axes == 0 or not is_parameter(args.weight, <cnp.ndarray> x, axes, &call.weight)
            or not (mean is None and norm != LN_LAYER_NORM or is_statistic(mean, <cnp.ndarray> x, axes))
            or not is_statistic(args.rstd, <cnp.ndarray> x, axes)
            or not is_plain(args.dy) or not is_like(<cnp.ndarray> args.dy, <cnp.ndarray> x)
            or not (args.dx is None or is_plain_out(args.dx, <cnp.ndarray> x))):
        raise_changed()
    call.threads = args.num_threads
    plan_rows_of(norm, <cnp.ndarray> x, axes, call)
    return axes


cdef inline int raise_changed() except -1:
    raise ValueError("an argument's shape, dtype or memory was changed while the call was being checked")

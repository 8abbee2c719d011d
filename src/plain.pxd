"""Plain arguments: those that need no conversion, and how they lie to each other. Knows arrays. Does not know kernels.

An array is plain when it is an exact ndarray of float32 or float64, C-contiguous, aligned and native. Nothing here raises: what is
not plain, or wrong, is lnfast._arguments' to say.
"""
cimport numpy as cnp
from cpython.long cimport PyLong_CheckExact

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int *) noexcept

cdef extern from "numpy/arrayobject.h" nogil:
    bint PyArray_ISCARRAY(cnp.ndarray)
    bint PyArray_ISCARRAY_RO(cnp.ndarray)
    void *PyArray_DATA(cnp.ndarray)


cdef inline bint is_plain(object x) noexcept:
    """An exact ndarray of float32 or float64, C-contiguous, aligned, native."""
    if not cnp.PyArray_CheckExact(x) or not PyArray_ISCARRAY_RO(<cnp.ndarray> x):
        return False
    cdef int dtype = cnp.PyArray_TYPE(<cnp.ndarray> x)
    return dtype == cnp.NPY_FLOAT32 or dtype == cnp.NPY_FLOAT64


cdef inline int plain_threads(object num_threads) noexcept:
    """num_threads where it is None (0: decide yourself) or an exact int that _checks.threads would leave as it is, else -1."""
    cdef int overflow = 0
    cdef long long n
    if num_threads is None:
        return 0
    if not PyLong_CheckExact(num_threads):
        return -1
    n = PyLong_AsLongLongAndOverflow(num_threads, &overflow)
    return <int> n if overflow == 0 and 1 <= n <= 1024 else -1


cdef inline int plain_mask(object mask, int outputs) noexcept:
    """The outputs a mask asks for (1: dx, 2: dweight, 4: dbias) where it is a tuple of a bool for each, else -1."""
    cdef int asked = 0, i
    if type(mask) is not tuple or len(<tuple> mask) != outputs:
        return -1
    for i in range(outputs):
        if (<tuple> mask)[i] is True:
            asked |= 1 << i
        elif (<tuple> mask)[i] is not False:
            return -1
    return asked


cdef inline bint is_parameter(object w, cnp.ndarray x, int axes, void **data) noexcept:
    """None, or a plain array of x's dtype with the shape of x's last axes; *data its elements."""
    cdef int axis
    if w is None:
        data[0] = NULL
        return True
    if not is_plain(w):
        return False
    cdef cnp.ndarray a = <cnp.ndarray> w
    if cnp.PyArray_TYPE(a) != cnp.PyArray_TYPE(x) or cnp.PyArray_NDIM(a) != axes:
        return False
    for axis in range(axes):
        if cnp.PyArray_DIM(a, axis) != cnp.PyArray_DIM(x, cnp.PyArray_NDIM(x) - axes + axis):
            return False
    data[0] = PyArray_DATA(a)
    return True


cdef inline int plain_axes(object normalized_shape, object weight, cnp.ndarray x) noexcept:
    """How many of x's last axes are normalised; 0 where it takes more than a look, or is wrong."""
    cdef int axes, axis, ndim = cnp.PyArray_NDIM(x)
    cdef object length
    if normalized_shape is None:
        axes = cnp.PyArray_NDIM(<cnp.ndarray> weight) if cnp.PyArray_CheckExact(weight) else 0
        return axes if axes <= ndim else 0
    if PyLong_CheckExact(normalized_shape):
        return 1 if ndim and is_length(normalized_shape, cnp.PyArray_DIM(x, ndim - 1)) else 0
    if type(normalized_shape) is not tuple:
        return 0
    axes = <int> len(<tuple> normalized_shape)
    if axes > ndim:
        return 0
    for axis in range(axes):
        length = (<tuple> normalized_shape)[axis]
        if not PyLong_CheckExact(length) or not is_length(length, cnp.PyArray_DIM(x, ndim - axes + axis)):
            return 0
    return axes


cdef inline bint is_length(object length, Py_ssize_t wanted) noexcept:
    cdef int overflow = 0
    return PyLong_AsLongLongAndOverflow(length, &overflow) == wanted and not overflow


cdef inline bint is_like(cnp.ndarray a, cnp.ndarray x) noexcept:
    """a has x's dtype and shape."""
    cdef int axis
    if cnp.PyArray_TYPE(a) != cnp.PyArray_TYPE(x) or cnp.PyArray_NDIM(a) != cnp.PyArray_NDIM(x):
        return False
    for axis in range(cnp.PyArray_NDIM(x)):
        if cnp.PyArray_DIM(a, axis) != cnp.PyArray_DIM(x, axis):
            return False
    return True


cdef inline bint is_statistic(object s, cnp.ndarray x, int axes) noexcept:
    """A plain float64 array of x's shape with 1 for each normalised axis."""
    cdef int axis, ndim = cnp.PyArray_NDIM(x)
    if not is_plain(s):
        return False
    cdef cnp.ndarray a = <cnp.ndarray> s
    if cnp.PyArray_TYPE(a) != cnp.NPY_FLOAT64 or cnp.PyArray_NDIM(a) != ndim:
        return False
    for axis in range(ndim):
        if cnp.PyArray_DIM(a, axis) != (cnp.PyArray_DIM(x, axis) if axis < ndim - axes else 1):
            return False
    return True


cdef inline bint overlap(object a, object b) noexcept:
    """Whether two plain arrays share memory; None shares none."""
    if a is None or b is None:
        return False
    cdef char *p = <char *> PyArray_DATA(<cnp.ndarray> a)
    cdef char *q = <char *> PyArray_DATA(<cnp.ndarray> b)
    return p < q + cnp.PyArray_NBYTES(<cnp.ndarray> b) and q < p + cnp.PyArray_NBYTES(<cnp.ndarray> a)


cdef inline bint is_plain_out(object out, cnp.ndarray x) noexcept:
    """A writable plain array of x's dtype and shape."""
    return is_plain(out) and PyArray_ISCARRAY(<cnp.ndarray> out) and is_like(<cnp.ndarray> out, x)


cdef inline bint is_same_or_apart(object out, object x) noexcept:
    """out is x's memory element for element, or shares none of it."""
    return PyArray_DATA(<cnp.ndarray> out) == PyArray_DATA(<cnp.ndarray> x) or not overlap(out, x)


cdef inline bint is_plain_sum(object out, object x, object residual, object weight, object bias) noexcept:
    """A plain sum_out for x + residual: the memory of either, element for element, or apart from it, apart from the parameters."""
    return (is_plain_out(out, <cnp.ndarray> x) and is_same_or_apart(out, x) and is_same_or_apart(out, residual)
            and not overlap(out, weight) and not overlap(out, bias))


cdef inline bint is_apart_for_dx(object out, object dy, tuple cache, int statistics) noexcept:
    """A plain out for dx: dy's or x's memory element for element or apart from it, apart from everything else."""
    return (is_plain_out(out, <cnp.ndarray> cache[0]) and is_same_or_apart(out, dy) and is_same_or_apart(out, cache[0])
            and not overlap(out, cache[2]) and not overlap(out, cache[3]) and not overlap(out, cache[2 + statistics]))

"""Steady arguments: those that go to the kernels over views as they are, and how they lie to x. Knows arrays, not kernels.

An array is steady when it is an exact ndarray of the dtype wanted, aligned and native, of any strides. Nothing here raises: what
is not steady, or wrong, is lnfast._arguments' to say.
"""
cimport numpy as cnp
from cpython.long cimport PyLong_AsLongAndOverflow, PyLong_CheckExact
from plain cimport PyArray_ISCARRAY, PyArray_ISCARRAY_RO, is_same_or_apart, overlap, plain_axes

cdef extern from "numpy/arrayobject.h" nogil:
    bint PyArray_ISBEHAVED_RO(cnp.ndarray)


# The axes of x as the kernels take them: those of the rows first, then `count` normalised ones.
cdef struct Order:
    int axes[64]
    int ndim
    int count
    Py_ssize_t rows
    Py_ssize_t cols


cdef inline void order_axes(cnp.ndarray x, const bint *normalized, Order *order) noexcept:
    cdef int axis, lead = 0
    order.ndim = cnp.PyArray_NDIM(x)
    order.count = 0
    order.rows = order.cols = 1
    for axis in range(order.ndim):
        if not normalized[axis]:
            order.axes[lead] = axis
            order.rows *= cnp.PyArray_DIM(x, axis)
            lead += 1
    for axis in range(order.ndim):
        if normalized[axis]:
            order.axes[lead + order.count] = axis
            order.cols *= cnp.PyArray_DIM(x, axis)
            order.count += 1


cdef inline void order_as(cnp.ndarray x, tuple axes, int count, Order *order) noexcept:
    """All axes of x, in this order, the last `count` of them normalised."""
    cdef int i
    order.ndim = cnp.PyArray_NDIM(x)
    order.count = count
    order.rows = order.cols = 1
    for i in range(order.ndim):
        order.axes[i] = axes[i]
        if i < order.ndim - count:
            order.rows *= cnp.PyArray_DIM(x, order.axes[i])
        else:
            order.cols *= cnp.PyArray_DIM(x, order.axes[i])


cdef inline bint find_order(object axis, object normalized_shape, object weight, cnp.ndarray x, Order *order) noexcept:
    """The order of x's axes for an `axis` that is None, an int or a tuple of ints; False where it takes more than a look."""
    cdef bint normalized[64]
    cdef int i, count, ndim = cnp.PyArray_NDIM(x)
    if ndim == 0:
        return False
    for i in range(ndim):
        normalized[i] = False
    if axis is None:
        count = plain_axes(normalized_shape, weight, x)
        for i in range(ndim - count, ndim):
            normalized[i] = True
    elif type(axis) is tuple:
        for number in <tuple> axis:
            if not mark(number, ndim, normalized):
                return False
        count = <int> len(<tuple> axis)
    else:
        count = mark(axis, ndim, normalized)
    if count == 0 or (axis is not None and normalized_shape is not None):
        return False
    order_axes(x, normalized, order)
    return True


cdef inline bint mark(object number, int ndim, bint *normalized) noexcept:
    cdef int overflow = 0
    cdef long i
    if not PyLong_CheckExact(number):
        return False
    i = PyLong_AsLongAndOverflow(number, &overflow)
    if i < 0:
        i += ndim
    if overflow or not 0 <= i < ndim or normalized[i]:
        return False
    normalized[i] = True
    return True


cdef inline bint are_last(const Order *order) noexcept:
    return order.axes[order.ndim - order.count] == order.ndim - order.count


cdef inline bint is_steady(object a, int dtype) noexcept:
    """An exact ndarray of this dtype, aligned and native."""
    return cnp.PyArray_CheckExact(a) and cnp.PyArray_TYPE(<cnp.ndarray> a) == dtype and PyArray_ISBEHAVED_RO(<cnp.ndarray> a)


cdef inline bint is_spread(object a, cnp.ndarray x) noexcept:
    """Whether an array broadcasts to x."""
    cdef int axis, extra = cnp.PyArray_NDIM(x) - cnp.PyArray_NDIM(<cnp.ndarray> a)
    cdef Py_ssize_t length
    for axis in range(cnp.PyArray_NDIM(<cnp.ndarray> a)):
        length = cnp.PyArray_DIM(<cnp.ndarray> a, axis)
        if extra < 0 or (length != 1 and length != cnp.PyArray_DIM(x, axis + extra)):
            return False
    return True


cdef inline bint is_parameter_of(object w, cnp.ndarray x, const Order *order) noexcept:
    """None, or an array of the lengths of the normalised axes; or of more axes, in front of them, where they are the last."""
    cdef int i, axis, ndim
    cdef cnp.ndarray a
    if w is None:
        return True
    a = <cnp.ndarray> w
    ndim = cnp.PyArray_NDIM(a)
    if ndim < order.count or (ndim > order.count and not are_last(order)):
        return False
    if ndim > order.count and not is_spread(a, x):
        return False
    for i in range(order.count):
        axis = order.axes[order.ndim - order.count + i]
        if cnp.PyArray_DIM(a, ndim - order.count + i) != cnp.PyArray_DIM(x, axis):
            return False
    return True


cdef inline bint is_steady_parameter(object w, cnp.ndarray x, int computed, const Order *order) noexcept:
    """None, or steady, in what is computed in or in x's dtype, and of a shape that goes with x."""
    return w is None or ((is_steady(w, computed) or is_steady(w, cnp.PyArray_TYPE(x))) and is_parameter_of(w, x, order))


cdef inline bint is_steady_mask(object mask, cnp.ndarray x) noexcept:
    return mask is None or (is_steady(mask, cnp.NPY_BOOL) and is_spread(mask, x))


cdef inline bint is_steady_gradient(object a, cnp.ndarray x) noexcept:
    """Steady, of x's dtype and shape."""
    cdef int axis
    if not is_steady(a, cnp.PyArray_TYPE(x)) or cnp.PyArray_NDIM(<cnp.ndarray> a) != cnp.PyArray_NDIM(x):
        return False
    for axis in range(cnp.PyArray_NDIM(x)):
        if cnp.PyArray_DIM(<cnp.ndarray> a, axis) != cnp.PyArray_DIM(x, axis):
            return False
    return True


cdef inline bint is_steady_out(object out, cnp.ndarray x) noexcept:
    """Steady, of x's dtype and shape, writable and C-contiguous."""
    return is_steady_gradient(out, x) and PyArray_ISCARRAY(<cnp.ndarray> out)


cdef inline bint is_apart(object out, object a) noexcept:
    """a is None, or C-contiguous and shares no memory with a C-contiguous out."""
    return a is None or (PyArray_ISCARRAY_RO(<cnp.ndarray> a) and not overlap(out, a))


cdef inline bint is_in_place_or_apart(object out, object a) noexcept:
    """The same, or a is that memory element for element."""
    return a is None or (PyArray_ISCARRAY_RO(<cnp.ndarray> a) and is_same_or_apart(out, a))


cdef inline bint is_row_statistic(object s, cnp.ndarray x, const Order *order) noexcept:
    """A contiguous float64 array of x's shape with 1 for each normalised axis."""
    cdef int i
    if not is_steady(s, cnp.NPY_FLOAT64) or not cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray> s):
        return False
    if cnp.PyArray_NDIM(<cnp.ndarray> s) != order.ndim:
        return False
    for i in range(order.ndim):
        if cnp.PyArray_DIM(<cnp.ndarray> s, order.axes[i]) != (
                cnp.PyArray_DIM(x, order.axes[i]) if i < order.ndim - order.count else 1):
            return False
    return True


cdef inline bint are_lengths(object lengths, cnp.ndarray x, const Order *order) noexcept:
    """A tuple of the lengths of the normalised axes."""
    cdef int i, overflow = 0
    if type(lengths) is not tuple or len(<tuple> lengths) != order.count:
        return False
    for i in range(order.count):
        length = (<tuple> lengths)[i]
        if not PyLong_CheckExact(length):
            return False
        if PyLong_AsLongAndOverflow(length, &overflow) != cnp.PyArray_DIM(x, order.axes[order.ndim - order.count + i]) or overflow:
            return False
    return True

"""The arrays that a call gives back: C-contiguous, their elements not set. Knows shapes."""
cimport numpy as cnp
from steady cimport Order


cdef inline cnp.ndarray empty_like(cnp.ndarray x):
    return cnp.PyArray_EMPTY(cnp.PyArray_NDIM(x), cnp.PyArray_DIMS(x), cnp.PyArray_TYPE(x), 0)


cdef inline cnp.ndarray empty_statistic(cnp.ndarray x, int axes):
    """For a mean or rstd: float64, x's shape with 1 for each normalised axis."""
    cdef cnp.npy_intp dims[64]
    cdef int axis, ndim = cnp.PyArray_NDIM(x)
    for axis in range(ndim):
        dims[axis] = cnp.PyArray_DIM(x, axis) if axis < ndim - axes else 1
    return cnp.PyArray_EMPTY(ndim, dims, cnp.NPY_FLOAT64, 0)


cdef inline cnp.ndarray empty_parameter(cnp.ndarray x, int axes):
    """For a dweight or dbias: x's dtype, the shape of its last axes."""
    cdef int lead = cnp.PyArray_NDIM(x) - axes
    return cnp.PyArray_EMPTY(axes, cnp.PyArray_DIMS(x) + lead, cnp.PyArray_TYPE(x), 0)


cdef inline cnp.ndarray empty_of_rows(cnp.ndarray x, const Order *order):
    """The same, where any axes are normalised."""
    cdef cnp.npy_intp dims[64]
    cdef int i
    for i in range(order.ndim):
        dims[order.axes[i]] = cnp.PyArray_DIM(x, order.axes[i]) if i < order.ndim - order.count else 1
    return cnp.PyArray_EMPTY(order.ndim, dims, cnp.NPY_FLOAT64, 0)


cdef inline cnp.ndarray empty_of_cols(cnp.ndarray x, const Order *order, int dtype):
    """For a dweight or dbias, where any axes are normalised."""
    cdef cnp.npy_intp dims[64]
    cdef int i
    for i in range(order.count):
        dims[i] = cnp.PyArray_DIM(x, order.axes[order.ndim - order.count + i])
    return cnp.PyArray_EMPTY(order.count, dims, dtype, 0)

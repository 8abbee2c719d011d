# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The door: arguments recognised, outputs allocated, kernels called; and what is the process's: threads, instruction set.

A call whose arguments are plain (exact arrays of one dtype, C-contiguous, native) is recognised here and goes straight
to the kernels. Every other call is made plain first by lnfast._arguments.
"""
import os

cimport numpy as cnp
from call cimport (
    Call, call_backward, call_forward, data_or_null, mean_of, plan_cache, plan_checked_backward, plan_checked_forward,
    plan_plain, rstd_of,
)
from call_views cimport call_add, call_backward_views, call_forward_views
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from kernels cimport LN_FLOAT32, LN_LAYER_NORM, LN_RMS_NORM, ln_choose, ln_isa, ln_isa_at, ln_rows_of
from pieces cimport run_piece
from plain cimport (
    PyArray_DATA, is_apart_for_dx, is_like, is_plain, is_plain_out, is_plain_sum, is_same_or_apart, overlap, plain_mask,
    plain_threads,
)
from results cimport empty_like, empty_of_cols, empty_of_rows, empty_parameter, empty_statistic
from steady cimport (
    Order, are_last, are_lengths, find_order, is_apart, is_in_place_or_apart, is_row_statistic, is_steady, is_steady_gradient,
    is_steady_mask, is_steady_out, is_steady_parameter, order_as,
)
from threads cimport available_threads, ln_cap_threads, ln_openmp, ln_set_quota, ln_watch_forks
from views cimport dtype_of

import numpy as np

from lnfast import _arguments, _axes, _checks, _layouts
from lnfast._records import LayerNormCache, RMSNormCache
from lnfast._cgroup import cpu_quota
from lnfast._version import __version__

cnp.import_array()

cdef extern from * nogil:
    """
    #if defined(__clang__)
    static const char ln_compiler[] = __VERSION__;
    #else
    static const char ln_compiler[] = "gcc " __VERSION__;
    #endif
    """
    const char ln_compiler[]


cdef object normalize(int norm, object x, object normalized_shape, object weight, object bias, object eps, object axis,
                      object mask, object out, object num_threads, object check_finite):
    """y of layer_norm and rms_norm."""
    cdef Call call
    cdef cnp.ndarray y
    cdef int threads = plain_threads(num_threads)
    if (threads >= 0 and check_finite is False and axis is None and mask is None
            and plan_plain(norm, x, normalized_shape, weight, bias, eps, &call)):
        if out is None:
            y = empty_like(<cnp.ndarray> x)
        elif (is_plain_out(out, <cnp.ndarray> x) and is_same_or_apart(out, x) and not overlap(out, weight)
                and not overlap(out, bias)):
            y = <cnp.ndarray> out
        else:
            y = None
        if y is not None:
            call.threads = threads
            call_forward(&call, PyArray_DATA(y), NULL, NULL)
            return y
    if threads >= 0 and check_finite is False:
        of_steady = normalize_steady(norm, False, x, normalized_shape, weight, bias, eps, axis, mask, out, threads)
        if of_steady is not None:
            return of_steady
    args = _arguments.forward(x, normalized_shape, weight, bias, eps, out, num_threads, check_finite, axis=axis, mask=mask,
                              keep_x=False)
    compute_forward(norm, args, None, None)
    return _arguments.deliver_forward(args)


cdef tuple normalize_and_keep(int norm, object x, object normalized_shape, object weight, object bias, object eps, object axis,
                              object mask, object out, object num_threads, object check_finite):
    """y and the record for the backward pass."""
    cdef Call call
    cdef cnp.ndarray y, mean, rstd
    cdef int axes
    cdef int threads = plain_threads(num_threads)
    if threads >= 0 and out is None and check_finite is False and axis is None and mask is None:
        axes = plan_plain(norm, x, normalized_shape, weight, bias, eps, &call)
        if axes:
            call.threads = threads
            if weight is not None:
                weight = cnp.PyArray_NewCopy(<cnp.ndarray> weight, cnp.NPY_CORDER)
                call.weight = PyArray_DATA(<cnp.ndarray> weight)
            y = empty_like(<cnp.ndarray> x)
            mean = empty_statistic(<cnp.ndarray> x, axes) if norm == LN_LAYER_NORM else None
            rstd = empty_statistic(<cnp.ndarray> x, axes)
            call_forward(&call, PyArray_DATA(y), <double *> data_or_null(mean), <double *> PyArray_DATA(rstd))
            if type(normalized_shape) is not tuple:
                normalized_shape = trailing_shape(<cnp.ndarray> x, axes)
            return y, keep(norm, x, normalized_shape, weight, mean, rstd, None, None)
    if threads >= 0 and check_finite is False and out is None:
        of_steady = normalize_steady(norm, True, x, normalized_shape, weight, bias, eps, axis, mask, None, threads)
        if of_steady is not None:
            return of_steady
    args = _arguments.forward(x, normalized_shape, weight, bias, eps, out, num_threads, check_finite, axis=axis, mask=mask,
                              keep_x=True)
    statistics = compute_statistics(norm, args)
    return _arguments.deliver_forward(args), keep_checked(norm, args, args.x, statistics)


def _add_and_normalize(int norm, bint keeps, x, residual, normalized_shape, weight, bias, eps, out, sum_out, num_threads,
                       check_finite):
    """y, x + residual and, where it is to be kept, the record. norm: 0 layer_norm, 1 rms_norm."""
    cdef Call call
    cdef cnp.ndarray y, s, mean = None, rstd = None
    cdef int axes
    cdef int threads = plain_threads(num_threads)
    if threads >= 0 and out is None and check_finite is False and is_plain(residual):
        axes = plan_plain(norm, x, normalized_shape, weight, bias, eps, &call)
        if (axes and is_like(<cnp.ndarray> residual, <cnp.ndarray> x)
                and (sum_out is None or is_plain_sum(sum_out, x, residual, weight, bias))):
            call.threads = threads
            if keeps:
                if weight is not None:
                    weight = cnp.PyArray_NewCopy(<cnp.ndarray> weight, cnp.NPY_CORDER)
                    call.weight = PyArray_DATA(<cnp.ndarray> weight)
                mean = empty_statistic(<cnp.ndarray> x, axes) if norm == LN_LAYER_NORM else None
                rstd = empty_statistic(<cnp.ndarray> x, axes)
            y = empty_like(<cnp.ndarray> x)
            s = empty_like(<cnp.ndarray> x) if sum_out is None else <cnp.ndarray> sum_out
            call_add(&call, PyArray_DATA(<cnp.ndarray> residual), PyArray_DATA(s), PyArray_DATA(y),
                     <double *> data_or_null(mean), <double *> data_or_null(rstd))
            if not keeps:
                return y, s
            return y, s, keep(norm, s, trailing_shape(<cnp.ndarray> x, axes), weight, mean, rstd, None, None)
    args = _arguments.forward(x, normalized_shape, weight, bias, eps, out, num_threads, check_finite, adds=True,
                              residual=residual, sum_out=sum_out, keep_x=keeps)
    if not keeps:
        compute_forward(norm, args, None, None)
        return _arguments.deliver_forward(args), _arguments.deliver_sum(args)
    statistics = compute_statistics(norm, args)
    delivered = _arguments.deliver_forward(args), _arguments.deliver_sum(args)
    return (*delivered, keep_checked(norm, args, np.asarray(delivered[1]), statistics))


cdef int bfloat16 = -1  # ml_dtypes' number for it, once it has been seen


cdef inline bint is_computed(int dtype) noexcept:
    return dtype == cnp.NPY_FLOAT32 or dtype == cnp.NPY_FLOAT64 or dtype == cnp.NPY_FLOAT16 or (dtype == bfloat16 and dtype >= 0)


cdef object normalize_steady(int norm, bint keeps, object x, object normalized_shape, object weight, object bias, object eps,
                             object axis, object mask, object out, int threads):
    """What normalize, or normalize_and_keep without `out`, give of steady arguments; None where one is not."""
    cdef Order order
    cdef int dtype, computed
    if not cnp.PyArray_CheckExact(x) or not PyFloat_CheckExact(eps):
        return None
    dtype = cnp.PyArray_TYPE(<cnp.ndarray> x)
    computed = cnp.NPY_FLOAT64 if dtype == cnp.NPY_FLOAT64 else cnp.NPY_FLOAT32
    if (not is_computed(dtype) or not is_steady(x, dtype) or not 0 <= PyFloat_AS_DOUBLE(eps) <= 1.7976931348623157e308
            or not find_order(axis, normalized_shape, weight, <cnp.ndarray> x, &order)
            or not is_steady_parameter(weight, <cnp.ndarray> x, computed, &order)
            or not is_steady_parameter(bias, <cnp.ndarray> x, computed, &order) or not is_steady_mask(mask, <cnp.ndarray> x)):
        return None
    if out is not None and not (is_steady_out(out, <cnp.ndarray> x) and is_in_place_or_apart(out, x) and is_apart(out, weight)
                                and is_apart(out, bias) and is_apart(out, mask)):
        return None
    if keeps and (has_leads(weight, &order) or has_leads(bias, &order)):
        return None  # of which records hold no mixture
    if keeps and are_last(&order) and not cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray> x):
        return None  # of which they hold a copy
    y = empty_like(<cnp.ndarray> x) if out is None else out
    mean = rstd = None
    if keeps:
        weight = None if weight is None else cnp.PyArray_NewCopy(<cnp.ndarray> weight, cnp.NPY_CORDER)
        mask = None if mask is None else cnp.PyArray_NewCopy(<cnp.ndarray> mask, cnp.NPY_CORDER)
        mean = empty_of_rows(<cnp.ndarray> x, &order) if norm == LN_LAYER_NORM else None
        rstd = empty_of_rows(<cnp.ndarray> x, &order)
    call_forward_views(norm, &order, x, None, mask, weight, bias, None, y, eps, threads, mean, rstd)
    if not keeps:
        return y
    lengths = tuple([cnp.PyArray_DIM(<cnp.ndarray> x, order.axes[i]) for i in range(order.ndim - order.count, order.ndim)])
    axes = None if are_last(&order) else tuple([order.axes[i] for i in range(order.ndim - order.count, order.ndim)])
    return y, keep(norm, x, lengths, weight, mean, rstd, axes, mask)


cdef inline void remember_bfloat16(int dtype) noexcept:
    global bfloat16
    bfloat16 = dtype


cdef inline bint has_leads(object parameter, const Order *order) noexcept:
    return parameter is not None and cnp.PyArray_NDIM(<cnp.ndarray> parameter) > order.count


cdef inline object narrow(object gradient, int dtype):
    """A contiguous float32 array in this half type, None as None; itself where it is to stay float32."""
    cdef cnp.ndarray wide, half
    if gradient is None or dtype == cnp.NPY_FLOAT32:
        return gradient
    wide = <cnp.ndarray> gradient
    half = cnp.PyArray_EMPTY(cnp.PyArray_NDIM(wide), cnp.PyArray_DIMS(wide), dtype, 0)
    ln_rows_of(LN_LAYER_NORM, LN_FLOAT32).narrow(PyArray_DATA(wide), cnp.PyArray_SIZE(wide), dtype_of(half), PyArray_DATA(half))
    return half


cdef tuple differentiate_steady(int norm, object dy, tuple cache, object ds, int asked, object out, int threads):
    """What differentiate gives of steady arguments; None where one is not."""
    cdef Order order
    cdef cnp.ndarray x
    cdef int dtype, computed, statistics = 2 if norm == LN_LAYER_NORM else 1
    if len(cache) != 5 + statistics or not cnp.PyArray_CheckExact(cache[0]):
        return None
    x, weight, rstd = <cnp.ndarray> cache[0], cache[2], cache[2 + statistics]
    axis, mask = cache[3 + statistics], cache[4 + statistics]
    mean = cache[3] if norm == LN_LAYER_NORM else None
    dtype = cnp.PyArray_TYPE(x)
    computed = cnp.NPY_FLOAT64 if dtype == cnp.NPY_FLOAT64 else cnp.NPY_FLOAT32
    if (not is_computed(dtype) or not is_steady(x, dtype) or not (axis is None or type(axis) is tuple)
            or not find_order(axis, cache[1] if axis is None else None, weight, x, &order) or not are_lengths(cache[1], x, &order)
            or not is_steady_parameter(weight, x, computed, &order) or has_leads(weight, &order)
            or not (mean is None and norm != LN_LAYER_NORM or is_row_statistic(mean, x, &order))
            or not is_row_statistic(rstd, x, &order) or not is_steady_mask(mask, x) or not is_steady_gradient(dy, x)
            or not (ds is None or (asked & 1 and is_steady_gradient(ds, x)))):
        return None
    if out is not None and not (is_steady_out(out, x) and is_in_place_or_apart(out, x) and is_in_place_or_apart(out, dy)
                                and is_in_place_or_apart(out, ds) and is_apart(out, weight) and is_apart(out, mask)
                                and is_apart(out, mean) and is_apart(out, rstd)):
        return None
    dx = out if out is not None else empty_like(x) if asked & 1 else None
    dweight = empty_of_cols(x, &order, computed) if asked & 2 else None
    dbias = empty_of_cols(x, &order, computed) if asked & 4 else None
    call_backward_views(norm, &order, order.rows, x, dy, mask, weight, ds, mean, rstd, threads, dx, dweight, dbias)
    if dtype != computed:
        dtype = dtype if weight is None else cnp.PyArray_TYPE(<cnp.ndarray> weight)
        dweight, dbias = narrow(dweight, dtype), narrow(dbias, dtype)
    return (dx, dweight, dbias) if norm == LN_LAYER_NORM else (dx, dweight)


cdef tuple compute_statistics(int norm, object args):
    """compute_forward, and the mean (of layer_norm) and rstd that it found."""
    shape = _axes.row_shape(args.axes, args.x.shape)
    mean = np.empty(shape, np.float64) if norm == LN_LAYER_NORM else None
    rstd = np.empty(shape, np.float64)
    compute_forward(norm, args, mean, rstd)
    return mean, rstd


cdef int compute_forward(int norm, object args, object mean, object rstd) except -1:
    """y, and x + residual where there is one, of checked arguments."""
    cdef Call call
    cdef Order order
    if args.views:
        if args.x.itemsize == 2 and cnp.PyArray_TYPE(<cnp.ndarray> args.x) != cnp.NPY_FLOAT16:
            remember_bfloat16(cnp.PyArray_TYPE(<cnp.ndarray> args.x))
        order_as(args.x, _layouts.forward_order(args), <int> len(args.axes), &order)
        return call_forward_views(norm, &order, args.x, args.residual, args.mask, args.weight, args.bias, args.sum, args.y,
                                  args.eps, args.num_threads, mean, rstd)
    plan_checked_forward(norm, &call, args)
    call_forward(&call, data_or_null(args.y), <double *> data_or_null(mean), <double *> data_or_null(rstd))
    return 0


cdef inline object record_of(int norm):
    return LayerNormCache if norm == LN_LAYER_NORM else RMSNormCache


cdef inline object keep(int norm, object x, tuple normalized_shape, object weight, object mean, object rstd, object axis,
                        object mask):
    if norm == LN_LAYER_NORM:
        return tuple.__new__(LayerNormCache, (x, normalized_shape, weight, mean, rstd, axis, mask))
    return tuple.__new__(RMSNormCache, (x, normalized_shape, weight, rstd, axis, mask))


cdef inline object keep_checked(int norm, object args, object x, tuple statistics):
    axis = None if _axes.are_last(args.axes, args.x.shape) else args.axes
    return keep(norm, x, args.normalized_shape, args.weight, statistics[0], statistics[1], axis, args.mask)


cdef inline tuple trailing_shape(cnp.ndarray x, int axes):
    cdef int axis, ndim = cnp.PyArray_NDIM(x)
    if axes == 1:
        return (cnp.PyArray_DIM(x, ndim - 1),)
    return tuple([cnp.PyArray_DIM(x, axis) for axis in range(ndim - axes, ndim)])


cdef tuple differentiate(int norm, object dy, object cache, object ds, object output_mask, object out, object num_threads,
                         object check_finite):
    """dx, dweight and, of layer_norm, dbias."""
    cdef Call call
    cdef Order order
    cdef cnp.ndarray x
    cdef int axes
    cdef int statistics = 2 if norm == LN_LAYER_NORM else 1
    cdef int asked = plain_mask(output_mask, 1 + statistics)
    cdef int threads = plain_threads(num_threads)
    if (threads >= 0 and check_finite is False and asked >= 0 and (out is None or asked & 1)
            and type(cache) is record_of(norm)):
        axes = plan_cache(norm, <tuple> cache, &call) if ds is None else 0
        if axes and is_plain(dy):
            x = <cnp.ndarray> (<tuple> cache)[0]
            if is_like(<cnp.ndarray> dy, x) and (out is None or is_apart_for_dx(out, dy, <tuple> cache, statistics)):
                call.threads = threads
                dx = out if out is not None else empty_like(x) if asked & 1 else None
                dweight = empty_parameter(x, axes) if asked & 2 else None
                dbias = empty_parameter(x, axes) if asked & 4 else None
                call_backward(&call, data_or_null(dy), mean_of(norm, <tuple> cache), rstd_of(norm, <tuple> cache),
                              data_or_null(dx), data_or_null(dweight), data_or_null(dbias))
                return (dx, dweight, dbias) if norm == LN_LAYER_NORM else (dx, dweight)
        of_steady = differentiate_steady(norm, dy, <tuple> cache, ds, asked, out, threads)
        if of_steady is not None:
            return of_steady
    args = _arguments.backward(dy, cache, output_mask, out, num_threads, check_finite, record_of(norm), ds=ds)
    if args.views:
        of = _layouts.backward(args)
        order_as(args.x, of.order, <int> len(args.axes), &order)
        call_backward_views(norm, &order, of.alike, args.x, args.dy, args.mask, args.weight, args.ds, of.mean, of.rstd,
                            args.num_threads, args.dx, of.dweight, of.dbias)
        dweight, dbias = _layouts.parameter_gradient(args, of.dweight), _layouts.parameter_gradient(args, of.dbias)
    else:
        axes = plan_checked_backward(norm, &call, args)
        dweight = empty_parameter(args.x, axes) if args.output_mask[1] else None
        dbias = empty_parameter(args.x, axes) if args.output_mask[2] else None
        call_backward(&call, data_or_null(args.dy), <double *> data_or_null(args.mean), <double *> data_or_null(args.rstd),
                      data_or_null(args.dx), data_or_null(dweight), data_or_null(dbias))
    gradients = _arguments.deliver_backward(args, dweight, dbias)
    return gradients if norm == LN_LAYER_NORM else gradients[:2]


def layer_norm(x, normalized_shape=None, weight=None, bias=None, eps=1e-5, *, axis=None, mask=None, out=None, num_threads=None,
               check_finite=False):
    """Layer normalisation over the trailing axes of x.

    ::

        y = (x - mean) * rstd * weight + bias,    rstd = 1 / sqrt(var + eps)

    with mean and var (the population's, divided by the number of elements) of each group of trailing elements.

    Parameters
    ----------
    x : array_like, shape ``lead + normalized_shape``
        float32 and float64 are kept, integers and bools become float64; so are float16 and bfloat16 (of the package
        ml_dtypes), which are computed in float32 and rounded once. Any strides, byte order and alignment; never written to
        unless it is `out`. C-contiguous input is not copied.
    normalized_shape : int or sequence of int, optional
        The trailing shape of x that is one group; by default the shape of `weight`.
    weight, bias : array_like, shape ``normalized_shape``, optional
        Scale and shift, cast once to x's dtype (float32 beside float16 or bfloat16, unless they have that type); None for ones
        and for zeros. With more axes in front, which broadcast against x's, each group gets its own: ``(B, 1, D)`` for one
        weight per sample of ``(B, T, D)``.
    eps : float, default 1e-5
        Added to the variance, in units of x squared; finite and at least 0.
    axis : int or sequence of int, optional
        Instead of `normalized_shape`: the axes of x that make a group, any of them, such as 1 for channels first
        ``(N, C, H, W)``. weight and bias have their lengths, in rising order. x is not copied.
    mask : array_like of bool, optional
        Of a shape that broadcasts to x's. False hides an element: mean and variance are those of the others, y is 0 there, and
        NaN or infinity there stay unseen. The result has the bits of the others alone, however much there is around them. A
        group that is hidden whole is 0 (mean 0, rstd ``1 / sqrt(eps)``).
    out : ndarray, optional
        Where the result goes: x's shape and dtype, any strides, writable. It may be x itself and may overlap any input; the
        result is as if the inputs had been copied first.
    num_threads : int, optional
        Threads of this call, taken as given. By default what OpenMP says, capped by `set_num_threads`, the CPU affinity, the
        container's quota and the amount of work. The result has the same bits for every number.
    check_finite : bool, default False
        Raise ValueError, with `out` untouched, for NaN or infinity in an input or in the result. Otherwise they spoil their
        own group and no other.

    Returns
    -------
    y : ndarray, x's shape and dtype
        A fresh C-contiguous array, or `out`.

    Raises
    ------
    TypeError
        For complex, object, string and extended-precision arrays, masked arrays, and arguments of the wrong kind.
    ValueError
        For shapes that do not fit and values out of range, and for both `axis` and `normalized_shape`. No argument has been
        changed.
    MemoryError
        Where there is no room for y, or to bring rows together that do not lie so. No argument has been changed.

    Notes
    -----
    Each y is within 3 machine epsilons of the exact value, relative to ``abs(weight) * max(1, abs(xhat)) + abs(bias)``, for
    every finite x. Ba, Kiros, Hinton, "Layer Normalization", 2016, arXiv 1607.06450.

    Examples
    --------
    >>> import numpy as np, lnfast
    >>> lnfast.layer_norm(np.array([[1.0, 2.0, 3.0]]), 3, [1, 2, 3], [0, 1, -1], eps=1 / 3)
    array([[-1.,  1.,  2.]])
    """
    return normalize(LN_LAYER_NORM, x, normalized_shape, weight, bias, eps, axis, mask, out, num_threads, check_finite)


def layer_norm_forward(x, normalized_shape=None, weight=None, bias=None, eps=1e-5, *, axis=None, mask=None, out=None,
                       num_threads=None, check_finite=False):
    """Layer normalisation, and the record that the backward pass needs.

    The cache keeps x by reference: changing x in place before `layer_norm_backward` changes the gradients. It keeps its own
    copy of weight.

    Parameters
    ----------
    x, normalized_shape, weight, bias, eps, axis, mask, num_threads, check_finite
        As in `layer_norm`, but a weight and a bias of which either has more axes than are normalised must have one shape.
    out : ndarray, optional
        As in `layer_norm`, but it must share no memory with x, which the cache needs.

    Returns
    -------
    y : ndarray, x's shape and dtype
        The same bits as from `layer_norm`.
    cache : LayerNormCache
        x, normalized_shape, weight, mean and rstd (float64, x's shape with 1 for each normalised axis), axis and mask.

    Raises
    ------
    TypeError, ValueError
        As `layer_norm`; ValueError where `out` overlaps x.
    """
    return normalize_and_keep(LN_LAYER_NORM, x, normalized_shape, weight, bias, eps, axis, mask, out, num_threads, check_finite)


def layer_norm_backward(dy, cache, *, ds=None, output_mask=(True, True, True), out=None, num_threads=None, check_finite=False):
    """Gradients of layer normalisation.

    ::

        h = dy * weight
        dx = rstd * (h - mean(h) - xhat * mean(h * xhat))       means over each group
        dweight = sum(dy * xhat),    dbias = sum(dy)            sums over the groups, never means

    Parameters
    ----------
    dy : array_like, x's shape
        Gradient of the loss with respect to y, cast to x's dtype.
    cache : LayerNormCache
        From `layer_norm_forward`, or built by hand; every field is checked. `cache.x` must be as it was in the forward pass.
    ds : array_like, x's shape, optional
        Added to dx: the gradient that reaches x by another way, such as that of the sum of `add_layer_norm_forward`.
    output_mask : sequence of three bools, default (True, True, True)
        Which of dx, dweight and dbias to compute; the others are None.
    out : ndarray, optional
        Receives dx: x's shape and dtype, any strides, writable. It may be dy, and may overlap any input.
    num_threads, check_finite
        As in `layer_norm`; check_finite also refuses a record with rstd <= 0.

    Returns
    -------
    dx : ndarray, x's shape and dtype, or None
        A fresh C-contiguous array, or `out`; 0 where the mask hides.
    dweight, dbias : ndarray, the weight's shape and dtype, or None
        Defined without a weight or bias as well: ``normalized_shape``, x's dtype. What the mask hides gives nothing.

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit; nothing has been changed.
    MemoryError
        Where there is no room for the sums of the row blocks; nothing has been changed.

    Notes
    -----
    The gradients have the same bits on any number of threads. Ba, Kiros, Hinton 2016, arXiv 1607.06450.
    """
    return differentiate(LN_LAYER_NORM, dy, cache, ds, output_mask, out, num_threads, check_finite)


def rms_norm(x, normalized_shape=None, weight=None, eps=1e-6, *, axis=None, mask=None, out=None, num_threads=None,
             check_finite=False):
    """Root mean square normalisation over the trailing axes of x: layer normalisation without centring.

    ::

        y = x * rstd * weight,    rstd = 1 / sqrt(mean(x ** 2) + eps)

    with the mean over each group of trailing elements.

    Parameters
    ----------
    x, normalized_shape, weight, axis, mask, out, num_threads, check_finite
        As in `layer_norm`. There is no bias.
    eps : float, default 1e-6
        Added to the mean square, in units of x squared; finite and at least 0. (`torch.nn.RMSNorm` takes the machine epsilon
        of x's dtype where it is given none.)

    Returns
    -------
    y : ndarray, x's shape and dtype
        A fresh C-contiguous array, or `out`.

    Raises
    ------
    TypeError, ValueError
        As `layer_norm`. No argument has been changed.

    Notes
    -----
    Each y is within 3 machine epsilons of the exact value, relative to that, for every finite x (and a subnormal step, where it
    is that small). Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv 1910.07467.

    Examples
    --------
    >>> import numpy as np, lnfast
    >>> lnfast.rms_norm(np.array([[1.0, 2.0, 2.0]]), 3, [1, 2, 3], eps=1)
    array([[0.5, 2. , 3. ]])
    """
    return normalize(LN_RMS_NORM, x, normalized_shape, weight, None, eps, axis, mask, out, num_threads, check_finite)


def rms_norm_forward(x, normalized_shape=None, weight=None, eps=1e-6, *, axis=None, mask=None, out=None, num_threads=None,
                     check_finite=False):
    """Root mean square normalisation, and the record that the backward pass needs.

    The cache keeps x by reference: changing x in place before `rms_norm_backward` changes the gradients. It keeps its own
    copy of weight.

    Parameters
    ----------
    x, normalized_shape, weight, eps, axis, mask, num_threads, check_finite
        As in `rms_norm`.
    out : ndarray, optional
        As in `rms_norm`, but it must share no memory with x, which the cache needs.

    Returns
    -------
    y : ndarray, x's shape and dtype
        The same bits as from `rms_norm`.
    cache : RMSNormCache
        x, normalized_shape, weight, rstd (float64, x's shape with 1 for each normalised axis), axis and mask.

    Raises
    ------
    TypeError, ValueError
        As `rms_norm`; ValueError where `out` overlaps x.
    """
    return normalize_and_keep(LN_RMS_NORM, x, normalized_shape, weight, None, eps, axis, mask, out, num_threads, check_finite)


def rms_norm_backward(dy, cache, *, ds=None, output_mask=(True, True), out=None, num_threads=None, check_finite=False):
    """Gradients of root mean square normalisation.

    ::

        h = dy * weight,    xhat = x * rstd
        dx = rstd * (h - xhat * mean(h * xhat))     means over each group
        dweight = sum(dy * xhat)                    a sum over the groups, never a mean

    Parameters
    ----------
    dy : array_like, x's shape
        Gradient of the loss with respect to y, cast to x's dtype.
    cache : RMSNormCache
        From `rms_norm_forward`, or built by hand; every field is checked. `cache.x` must be as it was in the forward pass.
    output_mask : sequence of two bools, default (True, True)
        Which of dx and dweight to compute; the others are None.
    ds, out, num_threads, check_finite
        As in `layer_norm_backward`.

    Returns
    -------
    dx : ndarray, x's shape and dtype, or None
        A fresh C-contiguous array, or `out`.
    dweight : ndarray, the weight's shape and dtype, or None
        Defined without a weight as well: ``normalized_shape``, x's dtype.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `layer_norm_backward`; nothing has been changed.

    Notes
    -----
    The gradients have the same bits on any number of threads. Zhang, Sennrich 2019, arXiv 1910.07467.
    """
    return differentiate(LN_RMS_NORM, dy, cache, ds, output_mask, out, num_threads, check_finite)


def _run_piece(int piece, int num_threads, dict operands):
    """One of the pieces (lnfast._pieces), of plain operands that make rows and columns; its results are among them."""
    run_piece(piece, num_threads, operands)


def set_num_threads(n):
    """Cap the threads of every later call that is not given `num_threads`.

    Parameters
    ----------
    n : int or None
        At least 1; None takes the cap away. More than OpenMP, the affinity or the container's quota allow does no harm.
    """
    ln_cap_threads(_checks.threads(n))


def get_num_threads():
    """Threads that a large enough call would use now."""
    return available_threads()


def config():
    """What this build is and how it runs here.

    Returns
    -------
    dict
        version (str), isa (str, the instruction set in force), isa_available (list of str, best first), openmp (bool),
        num_threads (int, what a large call would use) and compiler (str).
    """
    cdef int i = 0
    available = []
    while ln_isa_at(i) != NULL:
        available.append(ln_isa_at(i).decode())
        i += 1
    return {
        "version": __version__,
        "isa": ln_isa().decode(),
        "isa_available": available,
        "openmp": bool(ln_openmp),
        "num_threads": available_threads(),
        "compiler": (<bytes> ln_compiler).decode(),
    }


def show_config():
    """Print `config()`, a line each, for a bug report."""
    for name, value in config().items():
        print(f"{name:14}{', '.join(value) if isinstance(value, list) else value}")


def _start():
    """Once, at import: the instruction set, the quota, the fork hook."""
    name = os.environ.get("LNFAST_ISA", "")
    if ln_choose(name.encode()):
        raise ImportError(f"LNFAST_ISA={name!r} is not one of {', '.join(config()['isa_available'])}")
    ln_set_quota(cpu_quota())
    ln_watch_forks()


_start()

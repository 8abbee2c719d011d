"""The records that a forward pass leaves for the backward pass."""

from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]
Axes = tuple[int, ...]
Shape = tuple[int, ...]


class LayerNormCache(NamedTuple):
    """What the backward pass needs to know of a forward pass.

    `x` is kept by reference: changing it in place before the backward pass changes the
    gradients. `weight` is a copy. `layer_norm_forward` returns this record; anyone may build
    one from other sources (and pickle it): `layer_norm_backward` checks every field.

    Attributes
    ----------
    x : ndarray of float32, float64, float16 or bfloat16, shape ``lead + normalized_shape``
        The input of the forward pass; a copy only where that was not C-contiguous, aligned
        and in native byte order.
    normalized_shape : tuple of int
        The trailing shape of `x` over which each row is normalised.
    weight : ndarray of x's dtype, shape ``normalized_shape``, or None
        The scale that the forward pass used; None stands for ones. With more axes in front
        where it differs from row to row, and float32 perhaps where x is float16 or bfloat16.
    mean : ndarray of float64, shape ``lead + (1,) * len(normalized_shape)``
        The mean of each row.
    rstd : ndarray of float64, the same shape
        ``1 / sqrt(var + eps)`` of each row. eps is in here, and so is not kept itself.
    axis : tuple of int, optional
        The normalised axes of `x` where they are not its last ones; `normalized_shape` holds their
        lengths, and `mean` and `rstd` have a 1 for each.
    mask : ndarray of bool, broadcastable to x, optional
        Which elements count. A copy.
    """

    x: Array
    normalized_shape: Shape
    weight: Array | None
    mean: Array
    rstd: Array
    axis: Axes | None = None
    mask: Array | None = None


class RMSNormCache(NamedTuple):
    """What the backward pass of `rms_norm` needs to know of a forward pass.

    As `LayerNormCache`, without a mean: `x` is kept by reference, `weight` is a copy, anyone may
    build (and pickle) one, and `rms_norm_backward` checks every field.

    Attributes
    ----------
    x : ndarray of float32, float64, float16 or bfloat16, shape ``lead + normalized_shape``
        The input of the forward pass.
    normalized_shape : tuple of int
        The trailing shape of `x` over which each row is normalised.
    weight : ndarray of x's dtype, shape ``normalized_shape``, or None
        The scale that the forward pass used; None stands for ones. With more axes in front
        where it differs from row to row, and float32 perhaps where x is float16 or bfloat16.
    rstd : ndarray of float64, shape ``lead + (1,) * len(normalized_shape)``
        ``1 / sqrt(mean(x ** 2) + eps)`` of each row.
    axis, mask
        As of `LayerNormCache`.
    """

    x: Array
    normalized_shape: Shape
    weight: Array | None
    rstd: Array
    axis: Axes | None = None
    mask: Array | None = None


# Their public home, and the name that pickle writes
LayerNormCache.__module__ = RMSNormCache.__module__ = "lnfast"

Record = LayerNormCache | RMSNormCache
# What a backward pass makes of a record, and what makes one.
GRADIENTS = {LayerNormCache: ("dx", "dweight", "dbias"), RMSNormCache: ("dx", "dweight")}
FORWARD = {LayerNormCache: "layer_norm_forward", RMSNormCache: "rms_norm_forward"}


def fields(cache: Any, record: type[Record]) -> Any:
    """The record itself, whatever a subclass says of it; TypeError or ValueError for none."""
    names = record._fields
    if not issubclass(type(cache), record):
        raise TypeError(
            f"cache must be of type {record.__name__}, not {type(cache).__name__}: "
            f"{FORWARD[record]} returns one beside y, and "
            f"{record.__name__}({', '.join(names[:-2])}) builds one"
        )
    values = tuple.__getitem__(cache, slice(None))
    if len(values) != len(names):
        raise ValueError(f"cache must have {len(names)} fields, not {len(values)}")
    return cache if type(cache) is record else record(*values)

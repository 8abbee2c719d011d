"""Types of the compiled functions; what they do stands in their docstrings (_api.pyx)."""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex, TypedDict

from numpy.typing import ArrayLike, NDArray

from lnfast._records import LayerNormCache, RMSNormCache

class Config(TypedDict):
    version: str
    isa: str
    isa_available: list[str]
    openmp: bool
    num_threads: int
    compiler: str

def layer_norm(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
    mask: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> NDArray[Any]: ...
def layer_norm_forward(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
    mask: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[NDArray[Any], LayerNormCache]: ...
def layer_norm_backward(
    dy: ArrayLike,
    cache: LayerNormCache,
    *,
    ds: ArrayLike | None = None,
    output_mask: Sequence[bool] = (True, True, True),
    out: NDArray[Any] | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[NDArray[Any] | None, NDArray[Any] | None, NDArray[Any] | None]: ...
def rms_norm(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat = 1e-6,
    *,
    axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
    mask: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> NDArray[Any]: ...
def rms_norm_forward(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat = 1e-6,
    *,
    axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
    mask: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[NDArray[Any], RMSNormCache]: ...
def rms_norm_backward(
    dy: ArrayLike,
    cache: RMSNormCache,
    *,
    ds: ArrayLike | None = None,
    output_mask: Sequence[bool] = (True, True),
    out: NDArray[Any] | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]: ...
def _add_and_normalize(
    norm: int,
    keeps: bool,
    x: ArrayLike,
    residual: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    eps: SupportsFloat,
    out: NDArray[Any] | None,
    sum_out: NDArray[Any] | None,
    num_threads: SupportsIndex | None,
    check_finite: bool,
) -> Any: ...
def _run_piece(piece: int, num_threads: int, operands: dict[str, NDArray[Any] | None]) -> None: ...
def set_num_threads(n: SupportsIndex | None) -> None: ...
def get_num_threads() -> int: ...
def config() -> Config: ...
def show_config() -> None: ...

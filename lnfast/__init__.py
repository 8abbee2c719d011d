"""Layer normalisation for NumPy arrays on CPUs: fast, exact, reproducible."""

try:
    from lnfast._api import (
        config,
        get_num_threads,
        layer_norm,
        layer_norm_backward,
        layer_norm_forward,
        rms_norm,
        rms_norm_backward,
        rms_norm_forward,
        set_num_threads,
        show_config,
    )
except ModuleNotFoundError as error:
    if error.name != "lnfast._api":
        raise
    raise ImportError(
        "lnfast's compiled extension is not there: this is the source tree, or the build failed. "
        "Run `pip install .` in it, and import lnfast from another folder."
    ) from error

from lnfast import reference
from lnfast._records import LayerNormCache, RMSNormCache
from lnfast._version import __version__
from lnfast.derivatives import layer_norm_double_backward, layer_norm_jvp
from lnfast.layer import LayerNorm, RMSNorm
from lnfast.residual import (
    add_layer_norm,
    add_layer_norm_forward,
    add_rms_norm,
    add_rms_norm_forward,
)
from lnfast.split import backward_apply, backward_sums, merge_moments, moments, normalize

__all__ = [
    "LayerNorm",
    "LayerNormCache",
    "RMSNorm",
    "RMSNormCache",
    "__version__",
    "add_layer_norm",
    "add_layer_norm_forward",
    "add_rms_norm",
    "add_rms_norm_forward",
    "backward_apply",
    "backward_sums",
    "config",
    "get_num_threads",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_double_backward",
    "layer_norm_forward",
    "layer_norm_jvp",
    "merge_moments",
    "moments",
    "normalize",
    "reference",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_forward",
    "set_num_threads",
    "show_config",
]

"""The definition of layer normalisation and its family, in plain float64 NumPy.

The same functions as lnfast itself, with the same arguments, errors, shapes and dtypes, written
to be read: everything is computed in float64 and cast to x's dtype at the end. The name of a
gradient is that of its variable with a d in front. (Ba, Kiros, Hinton 2016, arXiv 1607.06450;
Zhang, Sennrich 2019, arXiv 1910.07467)
"""

from lnfast._records import LayerNormCache, RMSNormCache
from lnfast.reference.derivatives import layer_norm_double_backward, layer_norm_jvp
from lnfast.reference.norms import (
    layer_norm,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm,
    rms_norm_backward,
    rms_norm_forward,
)
from lnfast.reference.residual import (
    add_layer_norm,
    add_layer_norm_forward,
    add_rms_norm,
    add_rms_norm_forward,
)
from lnfast.reference.split import (
    backward_apply,
    backward_sums,
    merge_moments,
    moments,
    normalize,
)

__all__ = [
    "LayerNormCache",
    "RMSNormCache",
    "add_layer_norm",
    "add_layer_norm_forward",
    "add_rms_norm",
    "add_rms_norm_forward",
    "backward_apply",
    "backward_sums",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_double_backward",
    "layer_norm_forward",
    "layer_norm_jvp",
    "merge_moments",
    "moments",
    "normalize",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_forward",
]

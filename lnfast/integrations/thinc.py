"""thinc's LayerNorm, computed by lnfast; and the layer norms of a spaCy pipeline, swapped for it.

    mean = Σ X / nI           var = Σ (X − mean)² / nI           rstd = 1 / √(var + 1e-8)
    Y = (X − mean) · rstd · G + b

That is thinc's own formula, eps inside the root in both passes, so that the two differ by rounding
alone. thinc's G is lnfast's weight, its b is the bias. spaCy is never imported.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from lnfast import layer_norm_backward, layer_norm_forward
from lnfast.integrations._missing import missing

try:
    from thinc.config import registry
except ModuleNotFoundError as error:
    raise missing("thinc", "thinc", error) from None

from thinc.layers import layernorm
from thinc.model import Model
from thinc.types import Floats2d

Passes = tuple[Floats2d, Callable[[Floats2d], Floats2d]]  # Y, and from dY to dX

EPS = 1e-8  # a constant in thinc's code


def LayerNorm(nI: int | None = None) -> Model[Floats2d, Floats2d]:
    """Return thinc's ``LayerNorm(nI)`` with lnfast's forward and backward passes.

    The node's name, its dimensions nI and nO, the parameters G and b and how they start are
    thinc's: what one layer writes (`to_bytes`, `to_disk`), the other reads. In a config it is
    ``@layers = "lnfast.LayerNorm.v1"``.

    Parameters
    ----------
    nI : int, optional
        The width of X; without it, `initialize` takes it from the sample X (or Y).

    Returns
    -------
    thinc.model.Model
        From a 2-d array to another of the same shape and dtype. `thinc.api.with_array2d` makes it
        take lists of arrays, Ragged and Padded.
    """
    model = layernorm.LayerNorm(nI)
    model._func = forward
    return model


registry.layers("lnfast.LayerNorm.v1")(LayerNorm)


def forward(model: Model[Floats2d, Floats2d], X: Floats2d, is_train: bool) -> Passes:
    """Return Y and its backward pass, as thinc calls a layer.

    As in thinc's own layer, the backward pass is there in training and in inference, needs X
    unchanged until it has run, and adds to the gradients of G and b (`inc_grad`).

    Parameters
    ----------
    model : thinc.model.Model
        Its parameters G and b, each of shape (nI,), are read here.
    X : ndarray of float32 or float64, shape (rows, nI)
        Anything else, such as an array on a GPU, goes to thinc's own code.
    is_train : bool
        Without effect: layer normalisation does the same in both.

    Returns
    -------
    Y : ndarray, shape and dtype of X
        `lnfast.layer_norm` of X, G and b with the eps 1e-8, to the bit.
    backprop : callable
        From dY to dX, each of X's shape: `lnfast.layer_norm_backward`, to the bit.

    Raises
    ------
    KeyError
        If G and b have not been allocated: the layer is not initialised.
    TypeError, ValueError
        As `lnfast.layer_norm` and `layer_norm_backward` do.
    """
    if not (isinstance(X, np.ndarray) and X.ndim == 2):
        passes: Passes = layernorm.forward(model, X, is_train)
        return passes
    G, b = model.get_param("G"), model.get_param("b")
    Y, cache = layer_norm_forward(X, weight=G, bias=b, eps=EPS)

    def backprop(dY: Floats2d) -> Floats2d:
        # G as it is by now: spaCy's nlp.update steps the parameters of a shared tok2vec, in place,
        # between its two passes, and thinc's backward pass uses the new ones
        dX, dG, db = layer_norm_backward(dY, cache._replace(weight=G))
        model.inc_grad("b", db)
        model.inc_grad("G", dG)
        return dX

    return Y, backprop


def use_lnfast(pipeline: Any, enable: bool = True) -> int:
    """Have every layer norm of a spaCy pipeline computed by lnfast, or by thinc again.

    Only the function that each node calls is swapped, in place: names, dimensions, parameters and
    gradients stay, so that the pipeline is trained, saved and loaded as before, also where
    there is no lnfast. A pipeline loaded anew computes by thinc. Nodes on a GPU are left alone, and
    so are layer norms inside other frameworks' modules (PyTorch's of a transformer).

    Parameters
    ----------
    pipeline : spacy.language.Language or thinc.model.Model
        Of a pipeline all components count, disabled ones too.
    enable : bool, default True
        False gives every node back to thinc, those made by `LayerNorm` of this module too.

    Returns
    -------
    int
        How many nodes this call has swapped: 0 where nothing was left to do.

    Examples
    --------
    >>> nlp = spacy.load("en_core_web_sm")
    >>> use_lnfast(nlp)
    13
    >>> doc = nlp("As before.")
    """
    before, after = (layernorm.forward, forward) if enable else (forward, layernorm.forward)
    swapped = 0
    for model in _models(pipeline):
        for node in model.walk():
            if node._func is before and (node.ops.xp is np or not enable):
                node._func = after
                swapped += 1
    return swapped


def _models(pipeline: Any) -> list[Model[Any, Any]]:
    """A model, or those of a pipeline's components; a component that follows rules has none."""
    if isinstance(pipeline, Model):
        return [pipeline]
    models = [getattr(component, "model", None) for _, component in pipeline.components]
    return [model for model in models if isinstance(model, Model)]

"""Tensors for the tests of lnfast.integrations.torch, which are skipped where PyTorch is not."""

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is missing: pip install 'lnfast[torch]'")
bfloat16 = pytest.importorskip(
    "ml_dtypes", reason="ml_dtypes is missing: pip install 'lnfast[torch]'"
).bfloat16

NORMS = ["layer_norm", "rms_norm"]
# A norm, and which of its parameters are given
CASES = [("layer_norm", given) for given in product([True, False], repeat=2)]
CASES += [("rms_norm", (given,)) for given in (True, False)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Of x, and of the parameters beside it
MIXED = [(dtype, dtype) for dtype in DTYPES]
MIXED += [(torch.float16, torch.float32), (torch.bfloat16, torch.float32)]
LAYOUTS = {
    "contiguous": lambda t: t.clone(),
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "stepped": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "one element off": lambda t: torch.cat([t[:1].flatten()[:1], t.flatten()])[1:].view_as(t),
    "expanded": lambda t: t[:1].expand_as(t),
}
SHAPE, NORMALIZED, EPS = (6, 4, 10), (4, 10), 1e-3


def draw(shape, dtype, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape) + 1).to(dtype)


def draw_parameters(given, dtype, shape=NORMALIZED):
    return [draw(shape, dtype, 1 + i) if wanted else None for i, wanted in enumerate(given)]


def array(tensor):
    """By way of float32, which has every bfloat16."""
    if tensor is None:
        return None
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().float().numpy().astype(bfloat16)
    return tensor.detach().numpy()

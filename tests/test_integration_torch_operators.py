"""lnfast.integrations.torch: its operators where PyTorch traces, compiles or transforms them."""

import pytest
from tensors import (
    CASES,
    DTYPES,
    EPS,
    LAYOUTS,
    MIXED,
    NORMALIZED,
    NORMS,
    SHAPE,
    array,
    draw,
    draw_parameters,
    torch,
)
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import forward_ad
from variants import assert_all_same_bits, assert_same_bits

import lnfast.integrations.torch as ours

# PyTorch's own, on the way to forward mode
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")


def assert_passes(operator, *arguments):
    """Schema, gradients, shapes without a kernel, and tracing with unknown sizes."""
    results = torch.library.opcheck(operator, arguments)
    assert len(results) == 4 and set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("dtype", "beside", "layout"),
    [*((*dtypes, "contiguous") for dtypes in MIXED), (torch.float32, torch.float32, "transposed")],
)
@pytest.mark.parametrize(("norm", "given"), CASES)
def test_opcheck(norm, given, dtype, beside, layout):
    forward, backward, double_backward = (
        getattr(torch.ops.lnfast, norm + kind) for kind in ("", "_backward", "_double_backward")
    )
    x, dy, ddx = (LAYOUTS[layout](draw(SHAPE, dtype, seed)) for seed in (5, 6, 7))
    parameters, second = (draw_parameters(given, beside) for _ in range(2))
    _, *statistics = forward(x, NORMALIZED, *parameters, EPS)
    kept = x, NORMALIZED, parameters[0], *statistics
    everything = [True] * (1 + len(given))
    half = dtype in (torch.float16, torch.bfloat16)
    if half:
        assert_passes(backward, dy, *kept, everything)
    else:
        assert_passes(double_backward, dy, *kept, ddx, *second)
    for tensor in (x, dy, *parameters):
        if tensor is not None:
            tensor.requires_grad_()
    assert_passes(forward, x, NORMALIZED, *parameters, EPS)
    if not half:
        assert_passes(backward, dy, *kept, everything)


@pytest.mark.parametrize("place", range(3))
def test_opcheck_of_one_gradient(place):
    x, dy = (draw(SHAPE, torch.float32, seed).requires_grad_() for seed in (5, 6))
    weight = draw(NORMALIZED, torch.float32).requires_grad_()
    _, *statistics = torch.ops.lnfast.layer_norm(x.detach(), NORMALIZED, None, None, EPS)
    mask = [i == place for i in range(3)]
    assert_passes(
        torch.ops.lnfast.layer_norm_backward, dy, x, NORMALIZED, weight, *statistics, mask
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_compiled_once_for_all_batches(norm, dtype):
    def forward(x, weight):
        y = getattr(ours, norm)(x, (10,), weight)
        return y, (y * y).sum()

    torch.compiler.reset()
    backend = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(forward, backend=backend, fullgraph=True)
    for rows in (2, 3, 7):
        x, weight = (draw(shape, dtype).requires_grad_() for shape in ((rows, 10), (10,)))
        torch._dynamo.mark_dynamic(x, 0)
        results = []
        for function in (compiled, forward):
            y, total = function(x, weight)
            results.append([y, *torch.autograd.grad(total, (x, weight))])
        got, known = results
        assert_all_same_bits(map(array, got), map(array, known))
    assert backend.frame_count == 1
    called = [node.target for node in backend.graphs[0].graph.nodes if node.op == "call_function"]
    assert called[0] == getattr(torch.ops.lnfast, norm).default


@pytest.mark.parametrize("norm", NORMS)
def test_exported(norm):
    module = {"layer_norm": ours.LayerNorm, "rms_norm": ours.RMSNorm}[norm](10)
    sizes = {"input": {0: torch.export.Dim("rows", min=2)}}
    program = torch.export.export(module, (draw((4, 10), torch.float32),), dynamic_shapes=sizes)
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert called[0] == getattr(torch.ops.lnfast, norm).default
    x = draw((6, 10), torch.float32, 1)
    assert_same_bits(array(program.module()(x)), array(module(x)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_meta_tensors(norm, dtype):
    x = torch.empty(SHAPE, dtype=dtype, device="meta").transpose(0, 1)
    y = getattr(ours, norm)(x, (10,))
    assert (y.device.type, y.dtype, y.shape, y.is_contiguous()) == ("meta", dtype, x.shape, True)
    for wrong in [(4,), (), (2, 6, 4, 10), (10, 6)]:
        with pytest.raises(ValueError, match="must be the trailing shape of input"):
            getattr(ours, norm)(x, wrong)


def test_inference_mode():
    with torch.inference_mode():
        x = draw(SHAPE, torch.float32)
        y = ours.layer_norm(x, NORMALIZED)
    assert y.is_inference()
    assert_same_bits(array(y), array(ours.layer_norm(x.clone(), NORMALIZED)))


@pytest.mark.parametrize("norm", NORMS)
def test_vmap(norm):
    x, weight = draw((5, 3, 10), torch.float32), draw((5, 10), torch.float32, 1)

    def normalize(x, weight):
        return getattr(ours, norm)(x, (10,), weight)

    for axis, weights in ((0, weight), (None, weight[0])):
        got = torch.vmap(normalize, in_dims=(0, axis))(x, weights)
        each = [normalize(x[i], weights[i] if axis == 0 else weights) for i in range(5)]
        assert_same_bits(array(got), array(torch.stack(each)))


# Forward mode, of which an operator that has none would make a tangent of zeros


@pytest.mark.parametrize("norm", NORMS)
def test_no_forward_mode(norm):
    x, weight, tangent = draw((3, 5), torch.float32), draw((5,), torch.float32), torch.ones(5)

    def of_weight(weight):
        return getattr(ours, norm)(x, (5,), weight)

    with pytest.raises(TypeError, match="weight has a tangent: lnfast's operators have no forward"):
        torch.func.jvp(of_weight, (weight,), (tangent,))
    with pytest.raises(TypeError, match="weight has a tangent"):
        torch.func.jacfwd(of_weight)(weight)
    with forward_ad.dual_level(), pytest.raises(TypeError, match="weight has a tangent"):
        of_weight(forward_ad.make_dual(weight, tangent))


@pytest.mark.parametrize("norm", NORMS)
def test_no_forward_mode_in_the_backward_pass(norm):
    x = draw((3, 5), torch.float32).requires_grad_()
    y = getattr(ours, norm)(x, (5,))
    with forward_ad.dual_level():
        dy = forward_ad.make_dual(y.detach(), y.detach())
        with pytest.raises(NotImplementedError, match="dy has a tangent"):
            torch.autograd.grad(y, x, dy)

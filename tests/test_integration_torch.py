"""lnfast.integrations.torch: lnfast's bits, computed on the tensors' own memory.

Derivatives: test_integration_torch_derivatives.py. What PyTorch does with the operators:
test_integration_torch_operators.py. Models: test_integration_torch_modules.py.
"""

import pytest
from runs import in_fresh_python
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
from torch._subclasses import FakeTensorMode
from variants import assert_all_same_bits, assert_same_bits

import lnfast
import lnfast.integrations.torch as ours


def forward_and_gradients(norm, x, parameters, dy, **more):
    """By PyTorch: y, and a gradient for each tensor."""
    leaves = [None if t is None else t.detach().requires_grad_() for t in (x, *parameters)]
    y = getattr(ours, norm)(leaves[0], NORMALIZED, *leaves[1:], EPS)
    gradients = torch.autograd.grad(y, [t for t in leaves if t is not None], dy, **more)
    return y, gradients


def forward_and_gradients_of_arrays(norm, x, parameters, dy):
    """By lnfast: the same."""
    x, dy, *parameters = map(array, (x, dy, *parameters))
    y, cache = getattr(lnfast, f"{norm}_forward")(x, NORMALIZED, *parameters, EPS)
    dx, *others = getattr(lnfast, f"{norm}_backward")(dy, cache)
    given = zip(others, parameters, strict=True)
    return y, [dx, *(gradient for gradient, parameter in given if parameter is not None)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "beside"), MIXED)
@pytest.mark.parametrize(("norm", "given"), CASES)
def test_bits(norm, given, dtype, beside, layout):
    x, dy = (LAYOUTS[layout](draw(SHAPE, dtype, seed)) for seed in (5, 6))
    parameters = [None if t is None else LAYOUTS[layout](t) for t in draw_parameters(given, beside)]
    y, gradients = forward_and_gradients(norm, x, parameters, dy)
    known_y, known = forward_and_gradients_of_arrays(norm, x, parameters, dy)
    assert y.is_contiguous() and y.dtype == dtype
    assert_same_bits(array(y), known_y)
    wanted = [dtype, *(t.dtype for t in parameters if t is not None)]
    assert [gradient.dtype for gradient in gradients] == wanted
    # A bias in another dtype than lnfast has for it, where there is no weight, is cast by PyTorch
    known = [a.astype(array(t).dtype) for a, t in zip(known, gradients, strict=True)]
    assert_all_same_bits(map(array, gradients), known)


def test_float64_statistics_are_kept():
    """And are constants to autograd, which has their part in the gradient for input."""
    x = draw(SHAPE, torch.float32).requires_grad_()
    y, mean, rstd = torch.ops.lnfast.layer_norm(x, NORMALIZED, None, None, EPS)
    known_y, cache = lnfast.layer_norm_forward(array(x), NORMALIZED, eps=EPS)
    assert_all_same_bits(map(array, (y, mean, rstd)), (known_y, cache.mean, cache.rstd))
    assert [t.requires_grad for t in (y, mean, rstd)] == [True, False, False]
    y, rstd = torch.ops.lnfast.rms_norm(x, NORMALIZED, None, EPS)
    known_y, cache = lnfast.rms_norm_forward(array(x), NORMALIZED, eps=EPS)
    assert_all_same_bits(map(array, (y, rstd)), (known_y, cache.rstd))
    assert [t.requires_grad for t in (y, rstd)] == [True, False]


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_nothing_is_copied(monkeypatch, norm, dtype, layout):
    """What lnfast is given lies in the tensors' memory, and what it gives is the tensors'."""
    seen = {}

    def spied(name):
        function = getattr(lnfast, name)

        def spy(*arguments, **keywords):
            result = function(*arguments, **keywords)
            seen[name] = [*arguments, *result]
            return result

        monkeypatch.setattr(lnfast, name, spy)

    spied(f"{norm}_forward")
    spied(f"{norm}_backward")
    x, dy = (LAYOUTS[layout](draw(SHAPE, dtype, seed)).requires_grad_() for seed in (5, 6))
    weight = draw(NORMALIZED, dtype).requires_grad_()
    y = getattr(ours, norm)(x, NORMALIZED, weight)
    dx, dweight = torch.autograd.grad(y, (x, weight), dy)

    given_x, _, given_weight, *_, made_y, cache = seen[f"{norm}_forward"]
    given = {x: given_x, weight: given_weight, y: made_y}
    given_dy, record, made_dx, made_dweight, *_ = seen[f"{norm}_backward"]
    again = {x: record.x, weight: record.weight, dy: given_dy, dx: made_dx, dweight: made_dweight}
    for tensor, memory in [*given.items(), *again.items()]:
        assert address(memory) == tensor.data_ptr()
        assert memory.strides == tuple(n * tensor.element_size() for n in tensor.stride())
    assert address(record.rstd) == address(cache.rstd)


@pytest.mark.parametrize("frozen", range(3))
def test_frozen_tensors_get_no_gradient(monkeypatch, frozen):
    """Nor is one computed."""
    leaves = [draw(SHAPE, torch.float32), *draw_parameters([True, True], torch.float32)]
    dy = draw(SHAPE, torch.float32, 6)
    _, known = forward_and_gradients_of_arrays("layer_norm", leaves[0], leaves[1:], dy)
    backward, masks = lnfast.layer_norm_backward, []

    def spy(dy, cache, *, output_mask):
        masks.append(output_mask)
        return backward(dy, cache, output_mask=output_mask)

    monkeypatch.setattr(lnfast, "layer_norm_backward", spy)
    for i, leaf in enumerate(leaves):
        leaf.requires_grad_(i != frozen)
    ours.layer_norm(leaves[0], NORMALIZED, *leaves[1:], EPS).backward(dy)
    assert masks == [tuple(i != frozen for i in range(3))]
    for i, (leaf, gradient) in enumerate(zip(leaves, known, strict=True)):
        if i == frozen:
            assert leaf.grad is None
        else:
            assert_same_bits(array(leaf.grad), gradient)


@pytest.mark.parametrize("norm", NORMS)
def test_input_changed_in_place_is_noticed(norm):
    x = draw(SHAPE, torch.float32).requires_grad_()
    changed = x * 1
    y = getattr(ours, norm)(changed, NORMALIZED)
    changed[0] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (1, 1)])
@pytest.mark.parametrize("norm", NORMS)
def test_sizes_at_the_edge(norm, shape):
    x, weight = (draw(s, torch.float32).requires_grad_() for s in (shape, shape[1:]))
    y = getattr(ours, norm)(x, shape[1:], weight)
    dx, dweight = torch.autograd.grad(y, (x, weight), y.detach())
    assert [t.shape for t in (y, dx, dweight)] == [shape, shape, shape[1:]]
    assert torch.isfinite(torch.cat([t.flatten() for t in (y, dx, dweight)])).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_default_eps_of_rms_norm(dtype):
    """Mean squares near both machine epsilons, of float32 and float64, tell which was added."""
    x = draw((8, 16), torch.float64) * torch.logspace(-9, -1, 8, dtype=torch.float64)[:, None]
    x = x.to(dtype)
    theirs = torch.nn.functional.rms_norm(x, (16,))
    # Either is within 8 epsilons: a sum of 16, a root, a quotient
    few = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(ours.rms_norm(x, (16,)), theirs, rtol=few, atol=0)


# Errors

FLOATS = draw((3, 5), torch.float32)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((None, (5,)), TypeError, "input must be a tensor, not None"),
        ((FLOATS.numpy(), (5,)), TypeError, "input must be a tensor, not ndarray"),
        ((FLOATS, (5,), [1] * 5), TypeError, "weight must be a tensor, not list"),
        ((FLOATS.long(), (5,)), TypeError, "input has dtype torch.int64: it must be one of"),
        ((FLOATS.cfloat(), (5,)), TypeError, "input has dtype torch.complex64: it must be one of"),
        ((FLOATS, (5,), FLOATS[0].double()), TypeError, "weight has dtype torch.float64, which"),
        ((FLOATS, (5,), FLOATS[0].half()), TypeError, "weight has dtype torch.float16, which"),
        ((FLOATS.double(), (5,), FLOATS[0]), TypeError, "float32, which does not go with input's"),
        ((FLOATS.half(), (5,), FLOATS[0].bfloat16()), TypeError, "bfloat16, which does not go"),
        ((FLOATS.to_sparse(), (5,)), TypeError, "input is sparse or nested: it must be dense"),
        ((FLOATS, (5,), FLOATS[0].to_sparse()), TypeError, "weight is sparse or nested"),
        ((FLOATS, 5), (TypeError, RuntimeError), "normalized_shape"),
        ((FLOATS, ()), ValueError, "normalized_shape is empty"),
        ((FLOATS, (4,)), ValueError, r"normalized_shape \(4,\) does not match the last axis"),
        ((FLOATS, (5,), FLOATS[0, :4]), ValueError, r"weight .*\(5,\)"),
    ],
)
@pytest.mark.parametrize("norm", NORMS)
def test_errors(norm, arguments, kind, message):
    with pytest.raises(kind, match=message):
        getattr(ours, norm)(*arguments)


def test_errors_of_bias_and_eps():
    with pytest.raises(TypeError, match="bias has dtype torch.float64, which does not go"):
        ours.layer_norm(FLOATS, (5,), bias=FLOATS[0].double())
    with pytest.raises(ValueError, match="eps must be a finite number of at least 0, not -1.0"):
        ours.layer_norm(FLOATS, (5,), eps=-1.0)
    with pytest.raises(ValueError, match="eps must be a finite number of at least 0, not -1.0"):
        ours.rms_norm(FLOATS, (5,), eps=-1.0)


@pytest.mark.parametrize("norm", NORMS)
def test_other_devices(norm):
    """Fake tensors may pretend to be where there is nothing."""
    with FakeTensorMode(), pytest.raises(TypeError, match="input is on cuda:0: lnfast computes on"):
        getattr(ours, norm)(torch.empty(3, 5, device="cuda"), (5,))


@pytest.mark.parametrize("package", ["torch", "ml_dtypes"])
def test_missing_package(package):
    code = f"""
        import sys
        sys.modules[{package!r}] = None
        try:
            import lnfast.integrations.torch
        except ImportError as error:
            print(error)
    """
    message = f"lnfast.integrations.torch needs {package}, which is not installed: "
    assert in_fresh_python(code) == message + "pip install 'lnfast[torch]'"


def test_threads_of_pytorch_bound_those_of_lnfast():
    """Where the two have loaded one OpenMP between them, as PyTorch's wheels for Linux do."""
    code = """
        import lnfast.integrations.torch, torch
        with open("/proc/self/maps") as maps:
            libraries = {line.split()[-1] for line in maps if "omp" in line.rpartition("/")[2]}
        torch.set_num_threads(1)
        print(len(libraries), lnfast.get_num_threads())
    """
    libraries, threads = in_fresh_python(code, OMP_NUM_THREADS="2").split()
    if libraries != "1":
        pytest.skip(f"{libraries} OpenMP libraries in one process")
    assert threads == "1"

"""lnfast.integrations.onnx: the standard's own cases, types, axes, shapes of Scale and B, optional
outputs, each with the bits of lnfast; what is refused."""

import sys
from importlib import reload
from itertools import product

import numpy as np
import pytest
from variants import LAYOUTS, assert_all_same_bits, assert_same_bits, numbers

import lnfast

pytest.importorskip("onnx", reason="onnx is missing: pip install 'lnfast[onnx]'")
import onnx.backend.test.case.node.layernormalization  # adds the standard's cases to the list
import onnx.backend.test.case.node.rmsnormalization
from ml_dtypes import bfloat16
from onnx.backend.test.case.node import _NodeTestCases
from onnx.helper import make_node
from onnx.inliner import inline_local_functions
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

import lnfast.integrations.onnx
from lnfast.integrations.onnx import OPERATORS

NAMES = [operator.__name__ for operator in OPERATORS]
# The standard's expanded cases, which hold primitive nodes only, are left out.
CASES = [case for case in _NodeTestCases if case.model.graph.node[0].op_type in NAMES]
EPSILON = {np.float32: 2.0**-23, np.float64: 2.0**-52, np.float16: 2.0**-10, bfloat16: 2.0**-7}
DTYPES = list(EPSILON)
EPS = float(np.float32(1e-5))  # the standard's default, as a model holds it
ALL_OUTPUTS = ["Y", "Mean", "InvStdDev"]


@pytest.fixture
def calls(monkeypatch):
    """The names of lnfast's functions, in the order in which they are called."""
    names = []

    def watch(name, function):
        def call(*arguments, **keywords):
            names.append(name)
            return function(*arguments, **keywords)

        monkeypatch.setattr(lnfast, name, call)

    for name in ("layer_norm", "layer_norm_forward", "rms_norm"):
        watch(name, getattr(lnfast, name))
    return names


def run(model, *inputs):
    """The outputs of a model, or of a node alone, by the evaluator with lnfast's operators."""
    evaluator = ReferenceEvaluator(model, new_ops=OPERATORS)
    outputs = [name for name in evaluator.output_names if name]
    return evaluator.run(outputs, dict(zip(evaluator.input_names, inputs, strict=True)))


def layer_norm(x, scale, bias=None, *, outputs=("Y",), **attributes):
    inputs = ["X", "Scale", "B"][: 2 if bias is None else 3]
    node = make_node("LayerNormalization", inputs, outputs, **attributes)
    return run(node, *[array for array in (x, scale, bias) if array is not None])


def rms_norm(x, scale, **attributes):
    (y,) = run(make_node("RMSNormalization", ["X", "scale"], ["Y"], **attributes), x, scale)
    return y


def attributes_of(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def assert_exact(y, x, axis, scale, bias, epsilon=1e-5, *, centred=True):
    """Within 3 machine epsilons, as lnfast promises, of the formula in extended precision."""
    x, scale, bias = (np.asarray(a).astype(np.longdouble) for a in (x, scale, bias))
    axes = tuple(range(x.ndim))[axis:]
    x -= x.mean(axes, keepdims=True) if centred else 0
    xhat = x / np.sqrt((x * x).mean(axes, keepdims=True) + np.float32(epsilon))
    bound = np.abs(scale) * np.maximum(1, np.abs(xhat)) + np.abs(bias)
    error = np.abs(y.astype(np.longdouble) - (xhat * scale + bias))
    assert (error <= 3 * EPSILON[y.dtype.type] * bound).all()


def test_cases_are_there():
    """As many of each as onnx 1.18 has; a later one may have more."""
    found = [case.model.graph.node[0].op_type for case in CASES]
    assert min(map(found.count, NAMES)) >= 19


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("test_"))
def test_case_of_the_standard(case, calls):
    ((inputs, wanted),) = case.data_sets
    got = run(case.model, *inputs)
    for array, known in zip(got, wanted, strict=True):
        assert (array.dtype, array.shape) == (np.float32, known.shape)
        np.testing.assert_allclose(array, known, case.rtol, case.atol)
    assert calls == ["layer_norm_forward" if len(wanted) == 3 else "rms_norm"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("test_"))
def test_case_in_another_type(case, dtype):
    node = case.model.graph.node[0]
    x, scale, *bias = (array.astype(dtype) for array in case.data_sets[0][0])
    y, *statistics = run(node, x, scale, *bias)
    attributes = {"axis": -1, "epsilon": EPS} | attributes_of(node)
    axis, epsilon = attributes["axis"], attributes["epsilon"]
    assert (y.dtype, y.shape) == (dtype, x.shape)
    if node.op_type == "RMSNormalization":
        assert_exact(y, x, axis, scale, 0, epsilon, centred=False)
        assert_same_bits(y, lnfast.rms_norm(x, x.shape[axis:], scale, epsilon))
        return
    assert_exact(y, x, axis, scale, *bias, epsilon)
    known, cache = lnfast.layer_norm_forward(x, x.shape[axis:], scale, *bias, epsilon)
    kept = (a.astype(np.float32) for a in (cache.mean, cache.rstd))
    assert_all_same_bits([y, *statistics], [known, *kept])


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_far_from_zero(offset):
    x = numbers((20, 100), np.float32, offset=offset)
    scale, bias = numbers((2, 100), np.float32, seed=1)
    y, mean, rstd = layer_norm(x, scale, bias, outputs=ALL_OUTPUTS)
    assert_exact(y, x, -1, scale, bias)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(-1, keepdims=True), rtol=2.0**-23)
    variance = exact.var(-1, keepdims=True)
    np.testing.assert_allclose(rstd, 1 / np.sqrt(variance + np.float32(1e-5)), rtol=2.0**-23)


# x: (2, 3, 4)
SHAPES = {
    -1: [(), (1,), (4,), (1, 4), (3, 4), (3, 1), (2, 1, 4), (1, 1, 1), (2, 3, 4), (2, 3, 1)],
    1: [(), (4,), (3, 1), (1, 4), (3, 4), (1, 3, 4), (2, 1, 1), (2, 3, 4)],
    -3: [(), (4,), (3, 1), (2, 1, 1), (2, 3, 4)],
}
PAIRS = [(axis, *pair) for axis in SHAPES for pair in product(SHAPES[axis], repeat=2)]


@pytest.mark.parametrize("outputs", [["Y"], ALL_OUTPUTS], ids=["Y", "all"])
@pytest.mark.parametrize(("axis", "scale_shape", "bias_shape"), PAIRS)
def test_broadcasting(axis, scale_shape, bias_shape, outputs):
    x, scale, bias = (
        np.asarray(numbers(shape, np.float32, seed))
        for seed, shape in enumerate([(2, 3, 4), scale_shape, bias_shape])
    )
    y, *statistics = layer_norm(x, scale, bias, axis=axis, outputs=outputs)
    assert (y.dtype, y.shape) == (np.float32, x.shape)
    assert_exact(y, x, axis, scale, bias)
    # the bits do not depend on how Scale and B are written
    whole = (np.broadcast_to(array, x.shape).copy() for array in (scale, bias))
    assert_same_bits(y, lnfast.layer_norm(x, x.shape[axis:], *whole, eps=EPS))
    for statistic in statistics:
        assert statistic.shape == x.shape[:axis] + (1,) * len(x.shape[axis:])


@pytest.mark.parametrize(("axis", "shape"), [(axis, s) for axis in SHAPES for s in SHAPES[axis]])
def test_broadcasting_of_rms_norm(axis, shape):
    x, scale = numbers((2, 3, 4), np.float32), np.asarray(numbers(shape, np.float32, seed=1))
    y = rms_norm(x, scale, axis=axis)
    assert_exact(y, x, axis, scale, 0, centred=False)
    assert_same_bits(y, lnfast.rms_norm(x, x.shape[axis:], np.broadcast_to(scale, x.shape), EPS))


@pytest.mark.parametrize("scale_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_of_another_type(dtype, scale_dtype):
    x = numbers((5, 33), np.float32).astype(dtype)
    scale = numbers(33, np.float32, seed=1).astype(scale_dtype)
    y = rms_norm(x, scale)
    wide = np.float64 if np.float64 in (dtype, scale_dtype) else np.float32
    known = lnfast.rms_norm(x.astype(wide), 33, scale.astype(wide), EPS)
    assert_exact(known, x, -1, scale, 0, centred=False)
    assert_same_bits(y, known.astype(scale_dtype))


@pytest.mark.parametrize(
    ("outputs", "call"),
    [
        (["Y"], "layer_norm"),
        (["Y", "", ""], "layer_norm"),
        (["Y", "Mean"], "layer_norm_forward"),
        (["Y", "", "InvStdDev"], "layer_norm_forward"),
        (ALL_OUTPUTS, "layer_norm_forward"),
    ],
)
def test_optional_outputs(outputs, call, calls):
    x, scale = numbers((6, 17), np.float32), numbers(17, np.float32, seed=1)
    _, cache = lnfast.layer_norm_forward(x, 17, scale, eps=EPS)
    known = {
        "Y": lnfast.layer_norm(x, 17, scale, eps=EPS),
        "Mean": cache.mean.astype(np.float32),
        "InvStdDev": cache.rstd.astype(np.float32),
    }
    calls.clear()
    got = layer_norm(x, scale, outputs=outputs)
    assert_all_same_bits(got, [known[name] for name in outputs if name])
    assert calls == [call]


def test_bias_that_is_left_out_by_an_empty_name():
    model = parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        graph (float[N, 4] X, float[4] Scale) => (float[N, 4] Y) {
            Y = LayerNormalization (X, Scale, "")
        }""")
    x, scale = numbers((3, 4), np.float32), numbers(4, np.float32, seed=1)
    assert_same_bits(run(model, x, scale)[0], lnfast.layer_norm(x, 4, scale, eps=EPS))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [1, 2])
def test_any_layout(layout, axis):
    """Such as the view that the evaluator has of a transposed array."""
    x = numbers((4, 6, 8), np.float32)
    scale, bias = numbers((2, *x.shape[axis:]), np.float32, seed=1)
    known = layer_norm(x, scale, bias, axis=axis, outputs=ALL_OUTPUTS)
    every_second = (np.repeat(array, 2, axis=-1)[..., ::2] for array in (scale, bias))
    got = layer_norm(LAYOUTS[layout](x), *every_second, axis=axis, outputs=ALL_OUTPUTS)
    assert_all_same_bits(got, known)


def test_beyond_the_range_of_the_output():
    """Infinite, and no warning."""
    x = np.array([[1e300, 3e300]])
    y, mean, rstd = layer_norm(x, np.ones(2), outputs=ALL_OUTPUTS)
    np.testing.assert_allclose(y, [[-1, 1]], rtol=3 * EPSILON[np.float64])
    assert (mean.item(), rstd.item()) == (np.inf, 0)
    x, scale = np.array([[3, 4]], np.float32), np.array([65504, 65504], np.float16)
    assert_same_bits(rms_norm(x, scale), np.array([[55584, np.inf]], np.float16))


def test_in_a_subgraph(calls):
    model = parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        graph (bool condition, float[N, 4] X, float[4] Scale) => (float[N, 4] Y) {
            Y = If (condition) <
                then_branch = first () => (float[N, 4] A) { A = LayerNormalization (X, Scale) },
                else_branch = second () => (float[N, 4] B) { B = Identity (X) }
            >
        }""")
    x, scale = numbers((3, 4), np.float32), numbers(4, np.float32, seed=1)
    (y,) = run(model, np.array(True), x, scale)
    assert calls == ["layer_norm"]
    assert_same_bits(y, lnfast.layer_norm(x, 4, scale, eps=EPS))


def test_in_a_function_once_it_is_inlined(calls):
    model = parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        graph (float[N, 4] X, float[4] Scale) => (float[N, 4] Y) {
            Y = local.Norm <axis = -1, epsilon = 0.5> (X, Scale)
        }
        <domain: "local", opset_import: ["" : 17]>
        Norm <axis, epsilon> (x, scale) => (y) {
            y = LayerNormalization <axis: int = @axis, epsilon: float = @epsilon> (x, scale)
        }""")
    x, scale = numbers((3, 4), np.float32), numbers(4, np.float32, seed=1)
    (y,) = run(inline_local_functions(model), x, scale)
    assert calls == ["layer_norm"]
    assert_same_bits(y, lnfast.layer_norm(x, 4, scale, eps=0.5))


X, SCALE = np.ones((2, 3, 4), np.float32), np.ones(4, np.float32)


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
@pytest.mark.parametrize("axis", [3, -4])
def test_refuses_an_axis_that_is_not_there(norm, axis):
    message = rf"^axis {axis} is none of X's, whose shape is \(2, 3, 4\)$"
    with pytest.raises(ValueError, match=message):
        norm(X, SCALE, axis=axis)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (1, 2, 3, 4), (5, 1), (0,)])
def test_refuses_what_does_not_broadcast(shape):
    wrong = np.ones(shape, np.float32)
    message = r" with shape \({}\) does not broadcast to X's, \(2, 3, 4\)$".format(
        ", ".join(map(str, shape)) + "," * (len(shape) == 1)
    )
    with pytest.raises(ValueError, match="^Scale" + message):
        layer_norm(X, wrong, SCALE)
    with pytest.raises(ValueError, match="^B" + message):
        layer_norm(X, SCALE, wrong)
    with pytest.raises(ValueError, match="^scale" + message):
        rms_norm(X, wrong)


def test_refuses_parameters_that_would_enlarge_x():
    message = r"^B with shape \(4,\) does not broadcast to X's, \(2, 1\)$"
    with pytest.raises(ValueError, match=message):
        layer_norm(np.ones((2, 1), np.float32), SCALE[:1], SCALE)


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
@pytest.mark.parametrize("stash_type", [0, 10, 11, 16])
def test_refuses_other_stash_types(norm, stash_type):
    message = rf"^stash_type must be 1 \(float32\), not {stash_type}$"
    with pytest.raises(NotImplementedError, match=message):
        norm(X, SCALE, stash_type=stash_type)


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = r"^lnfast\.integrations\.onnx needs onnx, .*: pip install 'lnfast\[onnx\]'$"
    with pytest.raises(ImportError, match=message):
        reload(lnfast.integrations.onnx)

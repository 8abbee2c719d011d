"""lnfast.integrations.autograd: nothing is computed twice; signatures, errors, what is refused."""

import doctest
import inspect
from itertools import combinations, product

import numpy as np
import pytest
from runs import in_fresh_python
from variants import numbers

import lnfast

pytest.importorskip("autograd", reason="autograd is missing: pip install 'lnfast[autograd]'")
import autograd
import autograd.numpy as anp

from lnfast.integrations._autograd_primitives import DERIVATIVES, Derivatives
from lnfast.integrations.autograd import layer_norm, rms_norm

NORMS = [layer_norm, rms_norm]


@pytest.fixture
def calls(monkeypatch):
    """What is called, in order: a forward pass or derivative, with the output_mask it is given."""
    made = []

    def watched(name, function):
        def call(*args, output_mask=None, **keywords):
            made.append(name if output_mask is None else (name, tuple(output_mask)))
            if output_mask is not None:
                keywords["output_mask"] = output_mask
            return function(*args, **keywords)

        return call

    for name in ("layer_norm", "layer_norm_forward", "rms_norm", "rms_norm_forward"):
        monkeypatch.setattr(lnfast, name, watched(name, getattr(lnfast, name)))
    for record, functions in DERIVATIVES.items():
        each = map(watched, Derivatives._fields, functions)
        monkeypatch.setitem(DERIVATIVES, record, Derivatives(*each))
    return made


@pytest.mark.parametrize("norm", NORMS)
def test_each_pass_is_called_once(norm, calls):
    x, *parameters = numbers((3, 4), np.float64)[: 3 if norm is layer_norm else 2]
    forward = f"{norm.__name__}_forward"

    def loss(x, *parameters):
        return anp.sum(anp.tanh(norm(x, 4, *parameters)))

    def calls_of(run, *args):
        calls.clear()
        run(x, *parameters, *args)
        return calls

    assert calls_of(loss) == [norm.__name__]
    every = range(1 + len(parameters))
    for count in every:
        for argnums in combinations(every, count + 1):
            mask = tuple(n in argnums for n in every)
            assert calls_of(autograd.grad(loss, argnums)) == [forward, ("backward", mask)]

    backward = "backward", tuple(n == 0 for n in every)
    jvp, gradient = autograd.make_jvp(loss), autograd.grad(loss)
    assert calls_of(lambda *of: jvp(*of)(x)) == [forward, "jvp"]
    # The gradient of the gradient goes through both passes: backward, then forward.
    hessian = autograd.make_hvp(loss)
    assert calls_of(lambda *of: hessian(*of)[0](x)) == [
        *(forward, backward),
        *("double_backward", backward),
    ]
    # The tangent of the gradient: of y, and of both arguments of backward, dy and x.
    along = autograd.make_jvp(gradient)
    assert calls_of(lambda *of: along(*of)(x)) == [
        *(forward, "jvp", backward),
        *(backward, "double_backward"),
    ]

    # The gradient of a tangent, for x and for the tangent of x.
    def tangent(x, dx):
        return autograd.make_jvp(lambda x: norm(x, 4, *parameters))(x)(dx)[1]

    for argnum, last in ((0, "double_backward"), (1, backward)):
        vjp = autograd.make_vjp(tangent, argnum)
        assert calls_of(lambda x, *_, vjp=vjp: vjp(x, x)[0](x)) == [forward, "jvp", last]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("modes", list(product(["fwd", "rev"], repeat=3)))
def test_no_third_order(norm, modes):
    x, ones = numbers((3, 4), np.float64), np.ones((3, 4))

    def derivative(function, mode):
        if mode == "rev":
            return lambda x: autograd.make_vjp(function)(x)[0](ones)
        return lambda x: autograd.make_jvp(function)(x)(ones)[1]

    first, second, third = modes
    twice = derivative(derivative(lambda x: norm(x, 4), first), second)
    assert twice(x).shape == (3, 4)
    with pytest.raises(NotImplementedError, match="first and second order, not of the third"):
        derivative(twice, third)(x)


@pytest.mark.parametrize("norm", NORMS)
def test_weights_of_samples_have_no_forward_mode_and_no_second_order(norm):
    x, weight = numbers((2, 3, 5), np.float64), numbers((2, 1, 5), np.float64)
    message = r"weight must have shape \(5,\), not \(2, 1, 5\)"
    with pytest.raises(ValueError, match=message):
        autograd.make_jvp(norm)(x, 5, weight)(x)
    with pytest.raises(ValueError, match=message):
        autograd.make_hvp(lambda x: anp.sum(norm(x, 5, weight)))(x)[0](x)


def test_half_types_have_no_forward_mode():
    x = numbers((2, 5), np.float16)
    with pytest.raises(TypeError, match="float16"):
        autograd.make_jvp(layer_norm)(x, 5)(x)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "normalized_shape"),
        ({"normalized_shape": 5}, ValueError, "normalized_shape"),
        ({"weight": np.ones(5)}, ValueError, "weight"),
        ({"normalized_shape": 4, "eps": -1.0}, ValueError, "eps"),
        ({"normalized_shape": 4, "eps": "small"}, TypeError, "eps"),
        ({"normalized_shape": 4, "weight": 1j * np.ones(4)}, TypeError, "weight"),
    ],
)
def test_errors_are_lnfasts(norm, arguments, error, message):
    """Traced or not."""
    x = np.ones((3, 4))
    with pytest.raises(error, match=message) as wanted:
        getattr(lnfast, norm.__name__)(x, **arguments)
    for run in (norm, autograd.make_vjp(norm), lambda x, **a: autograd.make_jvp(norm)(x, **a)(x)):
        with pytest.raises(error) as found:
            run(x, **arguments)
        assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("norm", NORMS)
def test_eps_has_no_gradient(norm):
    x = numbers((3, 4), np.float64)
    with pytest.raises(TypeError, match="eps must be a real number, not ArrayBox"):
        autograd.grad(lambda eps: anp.sum(norm(x, 4, eps=eps)))(0.1)


@pytest.mark.parametrize("norm", NORMS)
def test_arguments_are_lnfasts_without_its_keywords(norm):
    own, others = (
        [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]
        for function in (norm, getattr(lnfast, norm.__name__))
    )
    assert own == [each for each in others if each[2] != inspect.Parameter.KEYWORD_ONLY]


def test_example():
    test = doctest.DocTestParser().get_doctest(layer_norm.__doc__, {}, "layer_norm", None, 0)
    assert test.examples and doctest.DocTestRunner().run(test).failed == 0


def test_missing_package():
    code = """
    import sys
    sys.modules["autograd"] = None
    try:
        import lnfast.integrations.autograd
    except ImportError as error:
        print(error)
    """
    assert in_fresh_python(code) == (
        "lnfast.integrations.autograd needs autograd, which is not installed: "
        "pip install 'lnfast[autograd]'"
    )

"""lnfast.integrations.thinc: lnfast's bits behind thinc's interface, and thinc's own answers."""

import numpy as np
import pytest
from runs import in_fresh_python
from thinc_rounding import Bounds
from variants import LAYOUTS, assert_all_same_bits, assert_same_bits, numbers

import lnfast

thinc = pytest.importorskip("thinc.api", reason="thinc is missing: pip install 'lnfast[thinc]'")

from lnfast.integrations.thinc import LayerNorm, layernorm, use_lnfast  # noqa: E402

EPS = 1e-8
SHAPES = [(0, 5), (1, 1), (3, 1), (5, 3), (7, 96), (300, 96), (20, 300)]


def drawn(layer, width=96):
    """The layer with parameters unlike those it starts with."""
    layer.initialize(X=np.zeros((1, width), np.float32))
    layer.set_param("G", numbers(width, np.float32, seed=1))
    layer.set_param("b", numbers(width, np.float32, seed=2))
    return layer


def both(width=96):
    """thinc's layer and lnfast's, with the same parameters."""
    return [drawn(layer(), width) for layer in (thinc.LayerNorm, LayerNorm)]


def passes(layer, X, dY, is_train=True):
    """Y, dX, dG and db of one forward and one backward pass."""
    Y, backprop = layer(X, is_train)
    return Y, backprop(dY), layer.get_grad("G"), layer.get_grad("b")


def assert_within(bounds, theirs, ours):
    for name, a, b in zip(("Y", "dX", "dG", "db"), theirs, ours, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        assert np.all(np.abs(np.float64(a) - b) <= getattr(bounds, name)), name


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_of_lnfast(shape, dtype, is_train, layout):
    X, dY = (LAYOUTS[layout](numbers(shape, dtype, seed)) for seed in (3, 4))
    layer = drawn(LayerNorm(), shape[1])
    y, cache = lnfast.layer_norm_forward(
        X, weight=layer.get_param("G"), bias=layer.get_param("b"), eps=EPS
    )
    wanted = (y, *lnfast.layer_norm_backward(dY, cache))
    for got, want in zip(passes(layer, X, dY, is_train), wanted, strict=True):
        assert_same_bits(got, want)


# Spreads as small as the root of thinc's eps, or 10 times smaller: its place and size show
@pytest.mark.parametrize("scale, offset", [(1, 0), (1, 10), (1e-4, 0), (1e-5, 0), (1e4, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_answers_of_thinc(shape, dtype, scale, offset):
    X = (scale * (numbers(shape, np.float64, seed=3) + offset)).astype(dtype)
    dY = numbers(shape, dtype, seed=4)
    theirs, ours = both(shape[1])
    bounds = Bounds(X, ours.get_param("G"), ours.get_param("b"), dY)
    assert_within(bounds, passes(theirs, X, dY), passes(ours, X, dY))


def test_gradients_add_up():
    X, dY = numbers((7, 96), np.float32), numbers((7, 96), np.float32, seed=4)
    layer = drawn(LayerNorm())
    *_, dG, db = (a.copy() for a in passes(layer, X, dY))
    *_, twice_dG, twice_db = passes(layer, X, dY)
    assert_same_bits(twice_dG, dG + dG)
    assert_same_bits(twice_db, db + db)


def test_parameters_stepped_between_the_passes():
    """As spaCy does with a tok2vec that several components share: in place, after its forward."""
    X, dY = numbers((7, 96), np.float32), numbers((7, 96), np.float32, seed=4)
    answers = []
    for layer in both():
        G = layer.get_param("G")
        Y, backprop = layer(X, is_train=True)
        G *= 2
        answers.append((Y, backprop(dY), layer.get_grad("G"), layer.get_grad("b")))
    assert_within(Bounds(X, G, layer.get_param("b"), dY), *answers)


@pytest.mark.parametrize("sample", ["nI", "X", "Y"])
def test_starts_as_thincs(sample):
    rows = np.zeros((2, 5), np.float32)
    layers = []
    for make in (thinc.LayerNorm, LayerNorm):
        layer = make(5 if sample == "nI" else None)
        with thinc.data_validation(True):
            layer.initialize(**({} if sample == "nI" else {sample: rows}))
        layers.append(layer)
    theirs, ours = layers
    assert ours.name == theirs.name == "layernorm"
    assert ours.dim_names == theirs.dim_names and ours.param_names == theirs.param_names
    assert ours.get_dim("nI") == ours.get_dim("nO") == 5
    for name in theirs.param_names:
        assert_same_bits(ours.get_param(name), theirs.get_param(name))


def test_each_reads_what_the_other_writes(tmp_path):
    theirs, ours = both()
    X = numbers((7, 96), np.float32)
    assert ours.to_bytes() == theirs.to_bytes()
    assert_same_bits(LayerNorm().from_bytes(theirs.to_bytes()).predict(X), ours.predict(X))
    ours.to_disk(tmp_path / "layer")
    read = thinc.LayerNorm().from_disk(tmp_path / "layer")
    assert_same_bits(read.predict(X), theirs.predict(X))


def test_copies_compute_by_lnfast():
    layer = drawn(LayerNorm())
    X = numbers((7, 96), np.float32)
    assert use_lnfast(layer.copy(), False) == 1
    assert_same_bits(layer.copy().predict(X), layer.predict(X))


CONFIG = '[model]\n@layers = "lnfast.LayerNorm.v1"\nnI = 5'


def test_named_by_a_config(monkeypatch):
    """Registered by the import, whatever the installed package says."""
    monkeypatch.setattr(thinc.registry.layers, "entry_points", False)
    model = thinc.registry.resolve(thinc.Config().from_str(CONFIG))["model"]
    assert model.get_dim("nO") == 5
    assert use_lnfast(model, False) == 1


def test_named_by_a_config_without_an_import():
    """By the entry point of the installed package."""
    printed = in_fresh_python(
        f"""
        import sys
        from thinc.api import Config, registry
        model = registry.resolve(Config().from_str({CONFIG!r}))["model"]
        print(model._func.__module__)
        """
    )
    assert printed == "lnfast.integrations.thinc"


LISTS = [numbers((3, 96), np.float32), numbers((2, 96), np.float32, seed=1)]
SEQUENCES = {
    "array": (lambda: np.vstack(LISTS), lambda Y: Y),
    "list": (lambda: LISTS, np.vstack),
    "ragged": (lambda: thinc.Ragged(np.vstack(LISTS), np.array([3, 2])), lambda Y: Y.dataXd),
    "padded": (
        lambda: thinc.list2padded().predict(LISTS),
        lambda Y: np.vstack(thinc.padded2list().predict(Y)),
    ),
}


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_wrapped_for_sequences(sequence):
    pack, unpack = SEQUENCES[sequence]
    layer = drawn(LayerNorm())
    wrapped = thinc.with_array2d(layer)
    rows = layer.predict(np.vstack(LISTS))
    Y, backprop = wrapped(pack(), is_train=True)
    assert_same_bits(unpack(Y), rows)
    dX = unpack(backprop(Y))
    _, plain = layer(np.vstack(LISTS), is_train=True)
    assert_same_bits(dX, plain(rows))


@pytest.mark.parametrize(
    "X", [LISTS, thinc.Ragged(LISTS[0], np.array([3])), np.zeros(96, np.float32)]
)
def test_what_thinc_refuses(X):
    errors = []
    for layer in both():
        with pytest.raises((AttributeError, np.exceptions.AxisError)) as error:
            layer.predict(X)
        errors.append((error.type, str(error.value)))
    assert errors[0] == errors[1]


def test_three_axes_go_to_thinc():
    """with_array hands over the three axes of Padded; thinc then takes the second for a row."""
    padded = thinc.list2padded().predict(LISTS)
    theirs, ours = (thinc.with_array(layer) for layer in both())
    assert isinstance(ours.predict(padded), thinc.Padded)
    assert_same_bits(ours.predict(padded).data, theirs.predict(padded).data)


def test_not_initialised():
    with pytest.raises(KeyError, match="Parameter 'G' for model 'layernorm' has not been alloc"):
        LayerNorm(5).predict(np.zeros((2, 5), np.float32))


def test_wrong_shapes_change_no_gradient():
    layer = drawn(LayerNorm())
    with pytest.raises(ValueError, match="normalized_shape"):
        layer.predict(np.zeros((2, 95), np.float32))
    _, backprop = layer(np.zeros((2, 96), np.float32), is_train=True)
    with pytest.raises(ValueError, match="dy must have"):
        backprop(np.zeros((2, 95), np.float32))
    assert not layer.has_grad("G") and not layer.has_grad("b")


def network(layer_norm=thinc.LayerNorm):
    """Two layer norms, one of them at two places."""
    shared = layer_norm(5)
    inner = thinc.residual(thinc.chain(thinc.Maxout(5, 5), layer_norm(5)))
    return thinc.chain(shared, inner, shared).initialize()


def test_swap_and_way_back():
    model = network()
    X = numbers((6, 5), np.float32, offset=1e4)  # rows on which thinc's bits are others
    before = model.predict(X)
    wanted = network(LayerNorm).from_bytes(model.to_bytes()).predict(X)
    assert not np.array_equal(before, wanted)

    assert use_lnfast(model) == 2
    assert_same_bits(model.predict(X), wanted)
    assert use_lnfast(model) == 0
    assert_same_bits(model.predict(X), wanted)

    assert use_lnfast(model, False) == 2
    assert_same_bits(model.predict(X), before)
    assert use_lnfast(model, False) == 0


def test_training_a_swapped_model():
    """Gradients of all parameters are those of a network made with LayerNorm."""
    swapped, made = network(), network(LayerNorm)
    made.from_bytes(swapped.to_bytes())
    use_lnfast(swapped)
    X, dY = numbers((6, 5), np.float32), numbers((6, 5), np.float32, seed=4)
    answers = []
    for model in swapped, made:
        _, backprop = model(X, is_train=True)
        dX = backprop(dY)
        gradients = [node.get_grad(name) for node in model.walk() for name in node.grad_names]
        assert len(gradients) == 6  # of the layer norms and of Maxout
        answers.append([dX, *gradients])
    assert_all_same_bits(*answers)


class Pipeline:
    """What use_lnfast asks of spaCy's Language: components, some of them without a model."""

    def __init__(self, **models):
        self.components = [(name, type("", (), {"model": models[name]})) for name in models]
        self.components.append(("without", object()))


def test_components_that_share_a_model():
    model = network()
    pipeline = Pipeline(first=model, rules=None, second=model, third=network())
    assert use_lnfast(pipeline) == 4
    assert use_lnfast(pipeline, False) == 4


def test_other_layers_of_that_name_are_left_alone():
    assert use_lnfast(thinc.Model("layernorm", lambda model, X, is_train: (X, None))) == 0


def test_nodes_on_a_gpu_are_left_alone():
    model = network()
    for node in model.walk():
        node.ops = thinc.CupyOps()
    assert use_lnfast(model) == 0
    assert sum(node._func is layernorm.forward for node in model.walk()) == 2


def test_nodes_moved_to_a_gpu_are_given_back():
    model = network()
    use_lnfast(model)
    for node in model.walk():
        node.ops = thinc.CupyOps()
    assert use_lnfast(model, False) == 2


def test_arrays_on_a_gpu_go_to_thinc(monkeypatch):
    """A swapped model that was moved to a GPU since."""
    asked = []
    monkeypatch.setattr(layernorm, "forward", lambda *arguments: asked.append(arguments) or "Y")
    layer, X = LayerNorm(5), type("ndarray", (), {"ndim": 2})()
    assert layer._func(layer, X, is_train=False) == "Y"
    assert asked == [(layer, X, False)]


def test_thinc_is_missing():
    printed = in_fresh_python(
        """
        import sys
        sys.modules["thinc"] = None
        try:
            import lnfast.integrations.thinc
        except ImportError as error:
            print(error, error.name)
        """
    )
    assert printed == (
        "lnfast.integrations.thinc needs thinc, which is not installed: "
        "pip install 'lnfast[thinc]' thinc"
    )


def test_does_not_import_spacy():
    code = "import sys, lnfast.integrations.thinc; print('spacy' in sys.modules)"
    assert in_fresh_python(code) == "False"

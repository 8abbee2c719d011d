"""lnfast.integrations.torch: LayerNorm and RMSNorm as modules, and exchanged in models."""

import copy
import io
import pickle

import pytest
from tensors import DTYPES, array, draw, torch
from torch._subclasses import FakeTensorMode
from variants import assert_same_bits

import lnfast
import lnfast.integrations.torch as ours

nn = torch.nn
TWINS = [(nn.LayerNorm, ours.LayerNorm), (nn.RMSNorm, ours.RMSNorm)]
LAYERS = ["layers.0.norm1", "layers.0.norm2", "layers.1.norm1", "layers.1.norm2"]


def draw_weights(module):
    """Weights and biases that are neither ones nor zeros."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(draw(parameter.shape, torch.float64, i) / 4)
    return module


@pytest.fixture
def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return draw_weights(nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8)))


@pytest.fixture
def x():
    return draw((3, 5, 8), torch.float32, 9)


@pytest.fixture
def calls(monkeypatch):
    """One for each layer norm that lnfast computes."""
    calls, forward = [], lnfast.layer_norm_forward

    def spy(x, *arguments):
        calls.append(x.shape)
        return forward(x, *arguments)

    monkeypatch.setattr(lnfast, "layer_norm_forward", spy)
    return calls


# Modules


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"eps": 1e-2}, {"elementwise_affine": False}])
@pytest.mark.parametrize(("theirs", "twin"), TWINS)
def test_modules_are_pytorchs_but_for_the_forward_pass(theirs, twin, options, dtype):
    known = draw_weights(theirs((4, 10), dtype=dtype, **options))
    module = twin((4, 10), dtype=dtype, **options)
    module.load_state_dict(known.state_dict())
    assert repr(module) == repr(known)
    assert module.state_dict().keys() == known.state_dict().keys()
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, known.get_parameter(name))
    x = draw((3, 4, 10), dtype)
    function = {nn.LayerNorm: ours.layer_norm, nn.RMSNorm: ours.rms_norm}[theirs]
    wanted = function(x, (4, 10), *parameters_of(known), known.eps)
    y = module(x)
    assert_same_bits(array(y), array(wanted))
    # lnfast's bound is 3 eps of this size, with |xhat| ≤ √40; PyTorch adds up 40 numbers
    weight, *bias = (None if p is None else p.abs().max() for p in parameters_of(known))
    size = (1 if weight is None else weight) * 40**0.5 + sum(b for b in bias if b is not None)
    assert (y - known(x)).abs().max() <= (3 + 40) * torch.finfo(dtype).eps * size


def parameters_of(module):
    """Those that the function takes, None among them."""
    names = ("weight", "bias") if isinstance(module, nn.LayerNorm) else ("weight",)
    return [getattr(module, name) for name in names]


def test_a_module_without_a_bias(x, calls):
    module = ours.LayerNorm(8, bias=False)
    assert list(module.state_dict()) == ["weight"] and module.bias is None
    assert_same_bits(array(module(x)), lnfast.layer_norm(array(x), 8))
    assert len(calls) == 1


def test_under_autocast(x):
    """bfloat16 beside float32 parameters: taken as it is."""
    norms = nn.LayerNorm(8), ours.LayerNorm(8), ours.RMSNorm(8)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = nn.Linear(8, 8)(x)
        results = [norm(hidden) for norm in norms]
    assert [y.dtype for y in (hidden, *results)] == [torch.bfloat16] * 4
    assert_same_bits(array(results[1]), lnfast.layer_norm(array(hidden), 8))
    results[1].sum().backward()
    assert norms[1].weight.grad.dtype == torch.float32


# What lnfast does not take, PyTorch computes


def test_other_devices(calls):
    """Fake tensors may pretend to be where there is nothing."""
    with FakeTensorMode(), torch.no_grad():
        y = ours.LayerNorm(8, device="cuda")(torch.empty(3, 8, device="cuda"))
    assert (y.device.type, y.shape, calls) == ("cuda", (3, 8), [])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(calls, layout):
    parts = [draw((rows, 8), torch.float32) for rows in (2, 3)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    y, wanted = ours.LayerNorm(8)(nested), nn.LayerNorm(8)(nested)
    assert y.is_nested and calls == []
    for got, known in zip(y.unbind(), wanted.unbind(), strict=True):
        assert torch.equal(got, known)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize(("theirs", "twin"), TWINS)
def test_forward_mode(x, theirs, twin):
    known, module = theirs(8, eps=1e-5), twin(8, eps=1e-5)
    for got, wanted in zip(
        torch.func.jvp(module, (x,), (x,)), torch.func.jvp(known, (x,), (x,)), strict=True
    ):
        assert torch.equal(got, wanted)


# Models


def test_a_model_is_swapped_in_place_and_back(encoder, x, calls):
    encoder.layers[1].requires_grad_(False).eval()
    parts = dict(encoder.named_modules())
    parameters = dict(encoder.named_parameters())
    training = [module.training for module in encoder.modules()]
    state = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    before = encoder(x)

    assert ours.swap_layer_norms(encoder) == [*LAYERS, "norm"]
    assert all(part is parts[name] for name, part in encoder.named_modules())
    assert all(p is parameters[name] for name, p in encoder.named_parameters())
    assert [module.training for module in encoder.modules()] == training
    assert encoder.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in encoder.state_dict().items())
    encoder(x)
    assert calls == [x.shape] * 5
    assert ours.swap_layer_norms(encoder) == []

    assert ours.restore_layer_norms(encoder) == [*LAYERS, "norm"]
    assert torch.equal(encoder(x), before) and len(calls) == 5
    assert ours.restore_layer_norms(encoder) == []


def step(model, x):
    """The output, all gradients, and all parameters after one step."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    y = model(x)
    y.square().mean().backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    optimiser.step()
    parameters = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return y.detach(), gradients, parameters


def test_one_training_step(encoder, x):
    """Within 3 times PyTorch's own distance from the step in float64, and so 4 from PyTorch's."""
    swapped, wide = copy.deepcopy(encoder), copy.deepcopy(encoder).double()
    ours.swap_layer_norms(swapped)
    steps = step(swapped, x), step(encoder, x), step(wide, x.double())
    for got, known, exact in zip(*steps, strict=True):
        rounding = (known - exact).abs().max()
        assert (got - exact).abs().max() <= 3 * rounding
        assert (got - known).abs().max() <= 4 * rounding


def test_copies_and_pickles(encoder, x):
    ours.swap_layer_norms(encoder)
    file = io.BytesIO()
    torch.save(encoder, file)
    file.seek(0)
    copies = copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))
    for other in (*copies, torch.load(file, weights_only=False)):
        assert type(other.norm) is ours.LayerNorm and other.norm is not encoder.norm
        assert_same_bits(array(other(x)), array(encoder(x)))


def test_state_dicts_go_both_ways(encoder, x):
    swapped = copy.deepcopy(encoder)
    ours.swap_layer_norms(swapped)
    fresh = draw_weights(copy.deepcopy(encoder)).half().float()
    fresh.load_state_dict(swapped.state_dict())
    assert torch.equal(fresh(x), encoder(x))
    ours.swap_layer_norms(fresh)
    fresh.load_state_dict(encoder.state_dict())
    assert_same_bits(array(fresh(x)), array(swapped(x)))


def test_hooks_stay(x):
    model = nn.Sequential(nn.LayerNorm(8))
    seen = []
    model[0].register_forward_hook(lambda module, given, y: seen.append(type(module)))
    ours.swap_layer_norms(model)
    model(x)
    assert seen == [ours.LayerNorm]


@pytest.mark.parametrize(("theirs", "twin"), TWINS)
def test_the_model_itself(theirs, twin, x):
    model = theirs(8)
    assert ours.swap_layer_norms(model) == [""]
    assert type(model) is twin
    assert ours.restore_layer_norms(model) == [""]
    assert type(model) is theirs


def test_shared_modules_once():
    norm = nn.RMSNorm(8)
    model = nn.ModuleDict({"first": norm, "second": nn.Sequential(norm), "third": nn.RMSNorm(8)})
    assert ours.swap_layer_norms(model) == ["first", "third"]
    assert type(model["second"][0]) is ours.RMSNorm


class Channels(nn.LayerNorm):
    """A subclass, as models have them: over the channels of images."""

    def forward(self, input):
        return super().forward(input.movedim(1, -1)).movedim(-1, 1)


class Renamed(nn.LayerNorm):
    pass


def test_what_is_left_alone():
    patched = nn.LayerNorm(8)
    patched.forward = lambda input: input
    others = [Channels(8), Renamed(8), patched, nn.GroupNorm(2, 8), nn.BatchNorm1d(8)]
    others.append(nn.utils.parametrizations.weight_norm(nn.LayerNorm(8), dim=None))
    classes = [type(module) for module in others]
    model = nn.Sequential(*others)
    assert ours.swap_layer_norms(model) == []
    assert [type(module) for module in model] == classes


def test_a_compiled_model_notices(x, calls):
    torch.compiler.reset()
    model = nn.Sequential(nn.LayerNorm(8))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compiled(x)
    assert calls == []
    ours.swap_layer_norms(model)
    y = compiled(x)
    assert len(calls) == 1
    assert_same_bits(array(y), array(model(x)))


@pytest.mark.parametrize("fused", [True, False])
def test_the_fused_operator_of_encoder_layers_passes_norms_by(encoder, x, calls, fused):
    """In eval mode, without gradients, and unless it is switched off."""
    ours.swap_layer_norms(encoder)
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fused)
    try:
        encoder.eval()(x)
        assert len(calls) == 5
        with torch.no_grad():
            encoder(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    assert len(calls) == 5 + (1 if fused else 5)

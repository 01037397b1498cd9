"""What every layer of the table must do in every mode, without a line of its own."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from vbdrop.layers import LAYERS, Rates, Units, Variational, Weights

INPUTS = {  # the shape of one example; a layer without an entry fails here, and gets one
    nn.Linear: (4,),
    NonDynamicallyQuantizableLinear: (4,),
    nn.Conv1d: (4, 6),
    nn.Conv2d: (4, 5, 4),
    nn.Conv3d: (4, 4, 3, 3),
    nn.ConvTranspose1d: (4, 4),
    nn.ConvTranspose2d: (4, 3, 2),
    nn.ConvTranspose3d: (4, 2, 2, 2),
}


ONE_PRODUCT = [kind for kind in LAYERS if not issubclass(kind, nn.RNNBase)]
"""The layers that are one product; those of several steps have a contract of their own, in test_recurrent.py."""


@pytest.fixture(params=ONE_PRODUCT, ids=lambda kind: kind.__name__)
def plain(request):
    """A plain layer of each kind: convolutions with groups, a stride and padding."""
    if issubclass(request.param, nn.Linear):
        return request.param(4, 6)
    return request.param(4, 6, 2, stride=2, padding=1, groups=2)


@pytest.fixture
def x(plain):
    return torch.randn(3, *INPUTS[type(plain)])


def noisy_tensors(layer):
    return [entry for m in layer.modules() if isinstance(m, Variational) for entry in m.variational()]


def penalised(layer, x):
    """A loss that reaches every parameter: of the output and of the KL."""
    return layer(x).float().square().sum() + sum(entry.kl() for entry in noisy_tensors(layer))


def finite_gradients(layer):
    return {name: p.grad is not None and bool(p.grad.isfinite().all()) for name, p in layer.named_parameters()}


def sampled(layer):
    for module in layer.modules():
        if isinstance(module, Variational):
            module.sampling = True
    return layer.eval()


def same_draw(first, second, x):
    torch.manual_seed(5)
    a = first(x)
    torch.manual_seed(5)
    return torch.equal(a, second(x))


# what it computes


def test_a_fresh_layer_is_the_plain_one_in_eval(plain, noisy, modes, x):
    layer = noisy(plain, *modes).eval()
    torch.testing.assert_close(layer(x), plain(x), rtol=0, atol=1e-6)


def test_training_has_the_moments_of_the_closed_form(plain, randomised, has_its_moments, modes, x):
    has_its_moments(randomised(plain, *modes).train(), plain, x[:1])


def test_sampled_eval_has_the_moments_of_the_closed_form(plain, randomised, has_its_moments, modes, x):
    has_its_moments(sampled(randomised(plain, *modes)), plain, x[:1])


def test_eval_is_the_masked_mean(plain, randomised, closed_form, modes, x):
    layer = randomised(plain, *modes).eval()
    mean, variance = closed_form(layer, plain, x)
    torch.testing.assert_close(layer(x).double(), mean, rtol=1e-4, atol=1e-5)
    assert variance.abs().max() < 1e-9
    assert torch.equal(layer(x), layer(x))


def test_noise_is_drawn_in_training_and_in_sampled_eval_alone(plain, randomised, modes, x):
    layer = randomised(plain, *modes)
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
    assert not torch.equal(sampled(layer)(x), layer(x))


def test_rates_are_never_masked_and_the_others_are(plain, randomised, modes):
    layer = randomised(plain, *modes)
    dead = [bool(entry.dead().any()) for entry in noisy_tensors(layer)]
    assert dead == [not isinstance(mode, Rates) for mode in modes for _ in range(1 + isinstance(mode, Units))]


def test_one_example_without_a_batch(plain, randomised, modes, x):
    layer = randomised(plain, *modes)
    torch.testing.assert_close(layer.eval()(x[0]), layer(x)[0], rtol=1e-4, atol=1e-5)
    results = []
    for example in (x[:1], x[0]):
        torch.manual_seed(5)
        layer.train().zero_grad()
        out = layer(example)
        out.square().sum().backward()
        results.append([out.detach().view_as(layer(x)[0]), *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_the_fused_backward_is_that_of_the_plain_formula(plain, randomised, modes, x):
    """In float64, with the same draws, to 1e-10."""
    fused = randomised(plain, *modes).double().train()
    reference = copy.deepcopy(fused)
    reference.fused = False
    results = []
    for layer in (fused, reference):
        wide = x.double().requires_grad_()
        torch.manual_seed(5)
        penalised(layer, wide).backward()
        results.append([wide.grad, *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_making_it_plain_keeps_the_eval_output_and_nothing_else(plain, randomised, modes, x):
    layer = randomised(plain, *modes).eval()
    expected, weight, bias = layer(x), layer.weight, layer.bias
    layer.make_plain_()
    layer.__class__ = type(plain)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)
    assert layer.weight is weight
    assert layer.bias is bias
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    assert vars(layer).keys() == vars(plain).keys()


# how it starts


def test_weight_and_bias_stay_the_same_parameters(plain, modes):
    weight, bias, kind = plain.weight, plain.bias, type(plain)
    plain.__class__ = LAYERS[kind]
    for mode in modes:
        plain.add_noise_(mode, outputs=True)
    assert plain.weight is weight
    assert plain.bias is bias
    assert isinstance(plain, kind)


def test_tiny_weights_do_not_start_dead(plain, noisy, modes):
    tiny = torch.tensor([1e-6, -1e-12, 1.0, -1.0]).repeat(plain.weight.numel() // 4 + 1)
    plain.weight.data = tiny[: plain.weight.numel()].view_as(plain.weight).clone()
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        layer = noisy(plain.to(dtype), *modes)
        assert not any(entry.dead().any() for entry in noisy_tensors(layer))


def test_a_weight_of_zero_is_dead_and_gives_no_noise_to_speak_of(plain, noisy, x):
    nn.init.zeros_(plain.weight)
    layer = noisy(plain, Weights()).train()
    assert layer.log_sigma2.isfinite().all()
    (entry,) = noisy_tensors(layer)
    assert entry.dead().all()
    torch.testing.assert_close(layer(x), plain(x), rtol=0, atol=1e-10)
    penalised(layer, x).backward()
    assert all(finite_gradients(layer).values())


@pytest.mark.parametrize("training", [True, False])
def test_nan_among_the_means_shows_in_the_outputs(plain, randomised, modes, x, training):
    layer = randomised(plain, *modes).train(training)
    for entry in noisy_tensors(layer):
        kept = entry.mean.detach().clone()
        with torch.no_grad():
            entry.mean[0] = torch.nan
        assert layer(x).isnan().any(), entry.name
        with torch.no_grad():
            entry.mean.copy_(kept)


def test_gates_start_at_exactly_one(plain, noisy):
    layer = noisy(plain, Units())
    assert (layer.gate.weight == 1).all()
    assert (layer.output_gate.weight == 1).all()


# its numbers in every precision


@pytest.mark.parametrize("fused", [True, False])
def test_bfloat16_keeps_the_rates_wide_and_the_gradients_finite(plain, randomised, modes, x, fused):
    layer = randomised(plain, *modes).to(torch.bfloat16).train()
    layer.fused = fused
    narrow = x.to(torch.bfloat16)
    narrow[0] = 0
    narrow.requires_grad_()
    assert layer(narrow).dtype == torch.bfloat16
    penalised(layer, narrow).backward()
    assert all(finite_gradients(layer).values())
    assert narrow.grad.isfinite().all()
    assert {name for name, p in layer.named_parameters() if p.dtype == torch.bfloat16} == {"weight", "bias"}
    assert {p.dtype for p in layer.parameters()} == {torch.bfloat16, torch.float32}
    assert layer.eval()(narrow).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_its_dtype_and_finite_gradients(plain, randomised, modes, x, dtype):
    layer = randomised(plain, *modes).train()
    x[0] = 0
    for given in (x, x.to(dtype)):  # the second is what a layer before this one would give
        leaf = given.clone().requires_grad_()
        with torch.autocast("cpu", dtype):
            out = layer(leaf)
            kl = sum(entry.kl() for entry in noisy_tensors(layer))
        (out.float().square().mean() + kl).backward()
        assert (out.dtype, kl.dtype) == (dtype, torch.float32)
        assert all(finite_gradients(layer).values())
        assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_layer_that_is_narrow_already_gets_wide_rates(plain, noisy, modes, dtype):
    layer = noisy(plain.to(dtype), *modes)
    narrow = {name for name, p in layer.named_parameters() if p.dtype != torch.float32}
    assert narrow == {"weight", "bias"}


def test_float64_all_through(plain, randomised, modes, x):
    layer = randomised(plain, *modes).double()
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    assert layer(x.double()).dtype == torch.float64
    assert {entry.kl().dtype for entry in noisy_tensors(layer)} == {torch.float64}


@pytest.mark.parametrize("log_sigma2", [-30.0, -10.0, 10.0])
def test_gradients_are_finite_in_the_tails(plain, noisy, modes, x, log_sigma2):
    """In float32, with means of exactly zero among others and an example of zeros."""
    layer = noisy(plain, *modes).train()
    with torch.no_grad():
        layer.weight.view(-1)[::3] = 0
        layer.weight.view(-1)[1::3] = 1e-20
        for entry in noisy_tensors(layer):
            entry.rate.fill_(log_sigma2)
            if entry.mean is not layer.weight:
                entry.mean.view(-1)[::2] = 0
    x[0] = 0
    x.requires_grad_()
    penalised(layer, x).backward()
    assert all(finite_gradients(layer).values())
    assert x.grad.isfinite().all()


# its life beside other code


def test_a_state_dict_goes_round(plain, noisy, randomised, modes, x):
    layer = randomised(plain, *modes)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = noisy(plain, *modes)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.state_dict().keys() == layer.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), other.parameters(), strict=True))
    assert same_draw(layer, other, x)


def test_a_plain_state_dict_loads_strictly_and_starts_the_rates_afresh(plain, noisy, randomised, modes, x):
    layer = randomised(plain, *modes)
    plain.weight.data[0] = 1e-7
    fresh = noisy(plain, *modes)
    given = plain.state_dict()
    names = list(given)
    layer.load_state_dict(given)
    assert list(given) == names, "the user's dict is left alone"
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), fresh.parameters(), strict=True))
    assert not any(entry.dead().any() for entry in noisy_tensors(layer))
    torch.testing.assert_close(layer.eval()(x), plain(x), rtol=0, atol=1e-6)


def test_a_state_dict_of_something_else_leaves_the_rates_alone(plain, randomised, modes):
    layer = nn.ModuleDict({"one": randomised(plain, *modes), "two": nn.Linear(2, 2)})
    before = {name: p.clone() for name, p in layer.state_dict().items()}
    other = nn.ModuleDict({"two": nn.Linear(2, 2)}).state_dict()
    missing = layer.load_state_dict(other, strict=False).missing_keys
    assert set(missing) == {name for name in before if name.startswith("one.")}
    assert all(torch.equal(p, before[name]) for name, p in layer["one"].state_dict(prefix="one.").items())
    with pytest.raises(RuntimeError, match="Missing key"):
        layer.load_state_dict(other)


def test_a_wrong_state_dict_is_still_an_error(plain, noisy, modes):
    layer = noisy(plain, *modes)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*nonsense"):
        layer.load_state_dict(plain.state_dict() | {"nonsense": torch.ones(1)})
    with pytest.raises(RuntimeError, match="size mismatch"):
        layer.load_state_dict(plain.state_dict() | {"weight": torch.ones(1, 1)})
    names = [[name for name, _ in module.named_parameters()] for module in (layer, noisy(plain, *modes))]
    assert names[0] == names[1]


def kept(layer):
    """Everything that the layer and its submodules hold, by name; containers as copies of what is in them."""
    held = {}
    for name, module in layer.named_modules():
        for key, value in vars(module).items():
            items = value.items() if isinstance(value, dict) else [("", value)]
            held |= {(name, key, item): id(each) for item, each in items}
            held[name, key] = None
    return held


def test_a_forward_leaves_nothing_on_a_module(plain, randomised, modes, x):
    """No attribute of the layer or of its gates is new, gone, or another object, in no mode."""
    layer = randomised(plain, *modes).train()
    before = kept(layer)
    penalised(layer, x)
    layer.eval()
    layer.train()
    assert kept(layer) == before
    layer(x).sum().backward()
    with torch.no_grad():
        layer(x)
    assert kept(layer) == before


def test_copies_after_a_forward_are_independent_and_alike(plain, randomised, modes, x):
    layer = randomised(plain, *modes).train()
    penalised(layer, x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other) is type(layer)
        assert same_draw(layer, other, x)
        assert not {p.data_ptr() for p in layer.parameters()} & {p.data_ptr() for p in other.parameters()}


def test_it_pickles_though_its_mode_came_with_lambdas(plain, noisy):
    for mode in (
        Weights(filter_fn=lambda module, name: True),
        Rates(filter_fn=lambda module, name: True),
        Units(filter_fn=lambda module, name: True, outputs=lambda module, name: True),
    ):
        assert type(pickle.loads(pickle.dumps(noisy(plain, mode)))) is LAYERS[type(plain)]


def test_a_cast_keeps_the_gradients_that_are_there(plain, randomised, modes, x):
    layer = randomised(plain, *modes)
    penalised(layer, x).backward()
    layer.to(torch.bfloat16)
    assert all(p.grad.dtype == p.dtype for p in layer.parameters())
    assert all(finite_gradients(layer).values())


def test_shapes_can_be_had_on_the_meta_device(plain, noisy, modes, x):
    layer = noisy(plain, *modes).to("meta")
    assert layer(x.to("meta")).shape == plain(x).shape


def test_it_says_what_it_is(plain, noisy, modes):
    text = repr(noisy(plain, *modes))
    assert plain.extra_repr() in text
    for mode in modes:
        assert "units, threshold=" in text if isinstance(mode, Units) else f"noise={type(mode).__name__}(" in text


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")  # torch's own compiler
@pytest.mark.parametrize("modes", ["weights", "rates-unit", "weights-units"], indirect=True)
def test_training_compiles_without_a_break(plain, randomised, modes, x):
    """The same draws and the same gradients as without the compiler."""
    torch.compiler.reset()
    layer = randomised(plain, *modes).train()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for function in (layer, compiled):
        layer.zero_grad()
        torch.manual_seed(5)
        out = function(x)
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, for forward mode
def test_it_can_be_transformed(plain, randomised, modes, x):
    """Gradients of each example, and a derivative along a direction, by `torch.func`."""
    layer = randomised(plain, *modes).train()
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    each = torch.func.vmap(
        torch.func.grad(
            lambda p, example: torch.func.functional_call(layer, p, (example.unsqueeze(0),)).square().sum()
        ),
        in_dims=(None, 0),
        randomness="different",
    )(parameters, x)
    assert all(g.shape == (len(x), *parameters[name].shape) for name, g in each.items())
    assert all(g.isfinite().all() for g in each.values())
    layer.eval()

    def loss(p):
        return torch.func.functional_call(layer, p, (x,)).square().sum()

    for training in (False, True):
        layer.train(training)
        direction = {name: torch.randn_like(p) for name, p in parameters.items()}
        torch.manual_seed(5)
        _, along = torch.func.jvp(loss, (parameters,), (direction,))
        torch.manual_seed(5)
        gradient = torch.func.grad(loss)(parameters)
        expected = sum((gradient[name] * d).sum() for name, d in direction.items())
        torch.testing.assert_close(along, expected, rtol=1e-3, atol=1e-3)


def test_eval_exports_for_any_batch(plain, randomised, modes, x):
    layer = randomised(plain, *modes).eval()
    exported = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    for batch in (x, torch.cat([x, x])):
        torch.testing.assert_close(exported(batch), layer(batch))

import copy
import functools
import math
import random
from functools import partial

import pytest
import torch
from tests.compression.idle_units import constant_units, unread_units
from tests.compression.nets import (
    NETS,
    LeNet5,
    difference,
    mask_layers_,
    mask_units_,
    mask_weights_,
    randomise_,
    removed,
    shapes,
    weights_of,
)
from tests.compression.random_graphs import RandomNet
from tests.compression.test_make_plan import mask_
from tests.stress import count as cases
from torch import fx, nn
from torch.nn.functional import relu

import vbdrop
from vbdrop.analysis.dead_units import LAYOUT, STRANDED, TIED
from vbdrop.analysis.graph import trace
from vbdrop.compression import compress
from vbdrop.compression.removal import remove
from vbdrop.layers import Gate
from vbdrop.layers.companions import companion

SHARES = (0.1, 0.5, 0.9, 0.99)
SUMS = ("resnet", "mobilenet")
SUMMED = {"stem", "conv2", "shortcut", "project"}
"""The networks with residual sums, and the layers in them whose outputs are terms."""
SHRINKING = [name for name, case in NETS.items() if case.shrinks]


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@functools.cache
def traced_net(name: str, dtype: torch.dtype):
    """A random network of this kind, an example for it, its graph and its state; traced once."""
    torch.manual_seed(sum(map(ord, name)))
    model, x = randomise_(NETS[name].build()).to(dtype), NETS[name].example()
    x = x.to(dtype) if x.is_floating_point() else x
    return model, x, trace(model, (x,)), copy.deepcopy(model.state_dict())


def masked_nets(name: str, dtype: torch.dtype, masks):
    """The network under each of these masks in turn."""
    model, x, traced, state = traced_net(name, dtype)
    for mask in masks:
        model.load_state_dict(state)
        mask(model)
        yield mask, model, x, remove(model, traced, (x,), {})


@pytest.mark.stress
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)][: cases(1, 2)], ids=str
)
@pytest.mark.parametrize("name", NETS)
def test_the_small_model_gives_the_outputs_of_the_masked_one(name, dtype, tolerance):
    kinds = [partial(mask, share=share) for mask in (mask_weights_, mask_units_) for share in SHARES]
    for mask, model, x, (small, _, left) in masked_nets(name, dtype, [*kinds, partial(mask_layers_, share=0.3)]):
        assert "model" not in left, (mask, left)
        assert difference(model, small, x) <= tolerance, mask
        if mask.func is not mask_weights_ and mask.keywords["share"] > 0.1:
            assert count(small) < count(model), mask


@pytest.mark.parametrize("sides", ["rows", "columns", "either"])
@pytest.mark.parametrize("name", SHRINKING)
def test_with_units_masked_a_layer_has_its_live_inputs_times_its_live_outputs(name, sides):
    masks = [partial(mask_units_, share=share, sides=sides) for share in SHARES]
    for mask, model, _, (small, _, left) in masked_nets(name, torch.float64, masks):
        for place, reason in left.items():  # only where channels meet in a sum can some be tied to needed ones
            tied = (TIED,) if name in SUMS and set(place.split(".")) & SUMMED else ()
            assert reason.endswith((LAYOUT, STRANDED, *tied)), (mask, place, left)
        found, weights = shapes(small), weights_of(model)
        final = list(found)[-1]  # what a model returns has to stay
        for layer, weight in weights.items():
            live = weight.flatten(2).any(-1) if weight.dim() > 2 else weight != 0
            inputs, live_outputs = int(live.any(0).sum()), live.any(1)
            if layer.startswith("expand"):
                # a constant channel is not uniform behind a depthwise convolution with padding, and each is another one
                live_outputs = live_outputs | weights[layer.replace("expand", "depthwise")].flatten(1).any(1)
            if name in ("resnet", "mobilenet") and sides != "rows" and layer in found:
                inputs = found[layer][1]  # of all that read a stream, one selects what it needs at most
            outputs = len(weight) if layer == final else int(live_outputs.sum())
            kept = math.prod(found.get(layer, (0, 0))[:2])
            # one constant channel on either side may have to carry the others, and one more spare a sum a copy
            spare = 2 if name == "resnet" else 1
            assert kept <= 1.05 * outputs * inputs + spare * (outputs + inputs + spare), (mask, layer, found[layer])


@pytest.mark.parametrize("name", NETS)
def test_widths_that_are_rounded_up_are_multiples_or_whole(name):
    model, x, traced, state = traced_net(name, torch.float64)
    model.load_state_dict(state)
    mask_units_(model, 0.5)
    exact, rounded = (remove(model, traced, (x,), {}, round_to=multiple).model for multiple in (1, 4))
    assert difference(model, rounded, x) <= 1e-10
    assert count(exact) <= count(rounded) <= count(model)
    before = shapes(model)
    for layer, sizes in shapes(rounded).items():
        grouped = layer.startswith("depthwise")  # its second axis is that of one group
        for now, whole in zip(sizes[: 1 if grouped else 2], before[layer], strict=False):
            assert now % 4 == 0 or now == whole, (layer, sizes, before[layer])


def test_the_class_is_kept_where_its_forward_holds():
    model = randomise_(NETS["vgg"].build())
    with torch.no_grad():
        model.features[2][0].weight[:3] = 0
    small, plan, _ = removed(model, torch.randn(2, 3, 8, 8).double())
    assert type(small) is type(model)
    assert plan.program is None
    assert small.features[2][0].out_channels == small.features[2][1].num_features < 8


def test_a_size_in_the_forward_that_has_to_change_gives_a_graph():
    model = randomise_(LeNet5())
    with torch.no_grad():
        model.conv2.weight[:6] = 0
    small, plan, _ = removed(model, torch.randn(2, 1, 28, 28).double())
    assert isinstance(small, fx.GraphModule)
    assert type(small.conv2) is nn.Conv2d
    assert small.conv2.out_channels == 4
    assert small.fc1.in_features == 64
    assert set(small.state_dict()) == set(model.state_dict())
    assert plan.program is not None


def test_without_rewriting_such_a_size_keeps_its_channels_and_the_rest_becomes_smaller():
    model = randomise_(LeNet5())
    with torch.no_grad():
        model.conv1.weight[:2] = 0
        model.conv2.weight[:6] = 0
        model.fc2.weight[:, :20] = 0
    small, plan, left = removed(model, torch.randn(2, 1, 28, 28).double(), rewrite=False)
    assert type(small) is LeNet5
    assert plan.program is None
    assert shapes(small)["conv1.weight"] == (4, 1, 5, 5)
    assert shapes(small)["conv2.weight"] == (10, 4, 5, 5)
    assert shapes(small)["fc1.weight"] == (4, 160)
    assert any("as an argument" in reason for reason in left.values())


def test_a_forward_is_replaced_only_if_that_removes_enough():
    model = randomise_(LeNet5())
    with torch.no_grad():
        model.fc2.weight[:, :20] = 0
        model.conv2.weight[:1] = 0  # the forward spells out how many features that leaves
    model, x = model.double().eval(), torch.randn(2, 1, 28, 28).double()
    traced = trace(model, (x,))
    small, plan, left = remove(model, traced, (x,), {}, rewrite_gain=0.9)
    assert type(small) is LeNet5
    assert plan.program is None
    assert left["forward"].startswith("it is kept, since a new one would remove only")
    assert difference(model, small, x) < 1e-10
    assert remove(model, traced, (x,), {}, rewrite_gain=0.01).plan.program is not None


class Attending(nn.Module):
    """With an attention that torch computes with a key of zeros besides, which no other class does."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, add_zero_attn=True)

    def forward(self, x):
        x = self.first(x)
        return self.last(self.attention(x, x, x, need_weights=False)[0])


def test_parts_that_use_their_weights_themselves_are_named():
    model = randomise_(Attending())
    with torch.no_grad():
        model.first.weight[:4] = model.first.bias[:4] = 0
    x = torch.randn(2, 5, 6).double()
    small, _, left = removed(model, x, rewrite=False)
    assert difference(model, small, x) < 1e-10
    assert shapes(small) == shapes(model)
    assert "MultiheadAttention uses its weights directly" in " ".join(left.values()), left
    assert any(place.startswith("attention") for place in left), left
    assert left["first"].startswith("4 of 8 outputs are dead but kept: "), left


def test_units_that_get_random_numbers_stay():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            hidden = self.fc1(x)
            return self.fc2(torch.relu(hidden + torch.randn_like(hidden)))

    model = Noisy().eval()
    with torch.no_grad():
        model.fc1.weight[:4] = 0
    x = torch.randn(3, 4)
    small, plan, left = remove(model, trace(model, (x,)), (x,), {})
    assert shapes(small) == shapes(model)
    assert plan.keep == {}
    assert "the operation aten.randn_like.default is not known" in left.values()


class Summed(nn.Module):
    """A sum of which a term loses channels, for which a new forward is needed."""

    def __init__(self, name: str = "middle"):
        super().__init__()
        self.name = name
        self.parts = nn.ModuleDict({"first": nn.Linear(4, 20, bias=False), name: nn.Linear(20, 20)})
        self.last = nn.Linear(20, 2)

    def forward(self, x):
        hidden = torch.sigmoid(self.parts["first"](x))
        return self.last(hidden + torch.sigmoid(self.parts[self.name](hidden)))


@torch.no_grad()
def summed(kind=Summed, *args) -> Summed:
    torch.manual_seed(0)
    model = randomise_(kind(*args))
    model.parts["first"].weight[:10] = 0
    model.parts[model.name].weight[5:15] = 0
    model.parts[model.name].weight[:, 3:18] = 0
    return model


def test_a_sum_gets_a_new_forward():  # so that the tests below are about what they say
    assert isinstance(removed(summed(), torch.zeros(4, 4).double()).model, fx.GraphModule)


@pytest.mark.parametrize("name", ["fc-1", "λ", "a b"])
def test_a_program_that_cannot_be_built_is_one_that_does_not_hold(name):
    small, plan, left = removed(summed(Summed, name), torch.randn(4, 4).double())
    assert isinstance(small, fx.GraphModule) or "it cannot be replaced" in left["forward"]
    assert (plan.program is None) == (type(small) is Summed)


class Alone(Summed):
    """With a branch that a trace does not see."""

    def forward(self, x):
        return super().forward(x) - (1 if x.shape[0] == 1 else 0)


class Many(Summed):
    """With a branch that removes the wrong units if they are those of the other branch."""

    def forward(self, x):
        hidden = torch.sigmoid(self.parts["first"](x))
        if x.shape[0] > 16:
            hidden = 2 * hidden
        return self.last(hidden)


def test_a_batch_of_one_that_takes_another_way_keeps_the_forward():
    small, plan, left = removed(summed(Alone), torch.randn(4, 4).double())
    assert type(small) is Alone
    assert plan.program is None
    assert left["forward"].startswith("it cannot be replaced, since then its output differs by 1,")
    assert left["forward"].endswith("(for noise, 1 in a batch)")


def test_the_other_side_of_a_branch_is_tried_too():
    model = summed(Many).double()
    x = torch.randn(4, 4).double()
    small, _, left = remove(model, trace(model, (x,)), (x,), {})
    assert left["model"].endswith("(for noise, 17 in a batch)")
    assert difference(model, small, torch.randn(20, 4).double()) == 0


class Short(nn.Module):
    """A residual branch over the steps of a sequence, whose number is read in several ways."""

    def __init__(self, way):
        super().__init__()
        self.embed, self.head = nn.Linear(6, 12), nn.Linear(12, 5)
        self.first, self.last = nn.Linear(12, 40), nn.Linear(40, 12)
        self.way, self.places = way, nn.Parameter(torch.randn(8, 12))

    def forward(self, x):
        steps = x.shape[1]
        if self.way == "limit" and steps > 8:
            raise ValueError("at most 8 steps")
        x = self.embed(x)
        x = x + self.places[:steps] if self.way == "places" else x
        x = x + self.last(relu(self.first(x)))
        count = min(steps, 8) if self.way == "counts to 8" else steps
        return self.head(x[:, -count:].sum(1) / count)


@pytest.mark.parametrize("way", ["limit", "places", "counts to 8"])
def test_inputs_shorter_than_the_example_are_right_or_refused(way):
    torch.manual_seed(0)
    model = Short(way).double().eval()
    with torch.no_grad():
        model.last.weight[:10] = 0
        model.last.bias[:10] = 0
    small = removed(model, torch.randn(2, 8, 6).double())
    assert small.plan.program is not None
    assert small.left["sizes"].startswith("the new forward takes inputs of the example's sizes only: ")
    with pytest.raises(RuntimeError, match="the inputs must have the sizes of the example"):
        small.model(torch.randn(2, 6, 6).double())


def test_a_model_that_keeps_a_state_gives_the_same_outputs_in_later_calls():
    class Leaky(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.head, self.seen = nn.Linear(6, 12), nn.Linear(12, 5), None

        def forward(self, x):
            x = relu(self.features(x))
            self.seen = x if self.seen is None else 0.9 * self.seen + x
            return self.head(self.seen)

    torch.manual_seed(0)
    model, xs = Leaky().double().eval(), torch.randn(4, 3, 6).double()
    with torch.no_grad():
        model.features.weight[[2, 5, 6, 9]] = 0
        model.features.bias[[2, 5, 6]] = 1.0
    small = compress(model, xs[0]).model
    for x in xs:
        torch.testing.assert_close(small(x), model(x))


@pytest.mark.parametrize("dims", [(), (1,), (0, 1)])
def test_a_mean_counts_the_channels_that_are_gone(dims):
    class Context(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.head = nn.Linear(6, 12), nn.Linear(12, 5)

        def forward(self, x):
            x = relu(self.features(x))
            return self.head(x * (1 + (x.mean(dims, keepdim=True) if dims else x.mean())))

    torch.manual_seed(0)
    model = Context()
    with torch.no_grad():
        model.features.weight[[2, 5]] = 0
        model.features.bias[[2, 5]] = -1.0
    model, example = model.double().eval(), torch.randn(4, 6).double()
    small = remove(model, trace(model, (example,)), (example,), {})
    assert small.model.state_dict()["features.weight"].shape[0] == 10
    x = torch.randn(7, 6).double()
    torch.testing.assert_close(small.model(x), model(x))


class Tied(nn.Module):
    """An autoencoder whose decoder has the weights of its encoder."""

    def __init__(self, inputs: int):
        super().__init__()
        self.conv, self.shift = nn.Conv2d(inputs, 6, 3, padding=1, bias=False), nn.Parameter(torch.ones(inputs, 1, 1))

    def forward(self, x):
        return nn.functional.conv_transpose2d(relu(self.conv(x)), self.conv.weight, padding=1) + self.shift


class Grouped(nn.Module):
    """A weight with groups, and without."""

    def __init__(self, inputs: int):
        super().__init__()
        self.conv, self.last = nn.Conv2d(inputs, 6, 1, groups=inputs // 3), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        ungrouped = nn.functional.conv2d(x[:, :3], self.conv.weight, self.conv.bias)
        return self.last(torch.sigmoid(ungrouped)) + self.last(torch.sigmoid(self.conv(x)))


@torch.no_grad()
@pytest.mark.parametrize(("kind", "inputs"), [(Tied, 6), (Tied, 3), (Grouped, 6)])
def test_a_weight_that_is_used_in_two_ways_stays_whole(kind, inputs):
    model = randomise_(kind(inputs))
    model.conv.weight[:2] = 0
    x = torch.randn(2, inputs, 8, 8).double()
    small, _, left = removed(model, torch.zeros_like(x))
    assert shapes(small)["conv.weight"] == shapes(model)["conv.weight"]
    assert (small.conv.in_channels, small.conv.groups) == (model.conv.in_channels, model.conv.groups)
    assert difference(model, small, x) < 1e-10
    assert any("is also used in another way" in reason for reason in left.values())


BLOCKS, PER_BLOCK = cases(1, 125), cases(5, 40)


@torch.no_grad()
def trained_random_graph(seed: int) -> tuple[nn.Module, bool]:
    """A random graph with dead weights or units, plain or converted, and whether it may be refused."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model = randomise_(RandomNet(seed, draw.randint(3, 8), hard=0.25)).double()
    masked, x = copy.deepcopy(model), torch.randn(2, 3, 6, 6).double()
    mask_(masked, draw.choice([0.3, 0.7, 0.9]), draw.choice(["rows", "columns", "either"]))
    kind = draw.choice(["plain", "weights", "units", "both"])
    if kind == "plain":
        return masked.eval(), False
    watched = draw.random() < 0.5
    modes = {"weights": [vbdrop.Weights()], "units": [vbdrop.Units()], "both": [vbdrop.Weights(), vbdrop.Units()]}
    vbdrop.convert_(model, *modes[kind], example_inputs=x if watched else None)
    dead = {name: weight == 0 for name, weight in masked.named_parameters()}
    rates = dict(model.named_parameters())
    for name, mask in dead.items():
        if (rate := rates.get(companion(name, "log_sigma2"))) is not None and "weight" in name.rpartition(".")[2]:
            rate[mask] = 20
    for module in model.modules():
        if isinstance(module, Gate):
            module.weight.uniform_(0.5, 1.5)
            module.log_sigma2[torch.rand(len(module.weight)) < 0.5] = 20
    read_twice = [model.steps[number - 1].layers[0] for number in model.reads_twice & model.used]
    return model.eval(), any(not watched or has_no_gradient(model, name, x) for name in read_twice)


@torch.enable_grad()
def has_no_gradient(model: nn.Module, layer: str, x: torch.Tensor) -> bool:
    """Whether a layer matters by comparisons alone, so that a conversion does not see what else reads its weight."""
    total = sum(output.sum() for output in model(x))
    return torch.autograd.grad(total, model.layers[layer].weight, allow_unused=True)[0] is None


def is_refused(model: nn.Module, x: torch.Tensor) -> bool:
    try:
        compress(model, x)
    except ValueError as error:
        return "read outside" in str(error)
    return False


def accepts(model: nn.Module, x: torch.Tensor) -> bool:
    try:
        model(x)
    except (RuntimeError, ValueError):  # a layer over positions, and its gate
        return False
    return True


def names(left: dict[str, str], layer: str) -> bool:
    """Whether a layer, or an operation in it, is among what was left."""
    return any(place == layer or place.startswith(f"{layer} (") for place in left)


def check_random_graph(seed: int) -> None:
    """The outputs are those of the model that was given, and what is dead and stays is named; or it is refused."""
    model, may_be_refused = trained_random_graph(seed)
    x = torch.randn(2, 3, 6, 6).double()
    if may_be_refused and is_refused(model, x):
        return
    small = compress(model, x)
    assert difference(model, small.model, x) < 1e-9, seed
    if seed % 4 == 3:  # with zeros that fill up the widths
        assert difference(model, compress(model, x, round_to=2 + seed % 3).model, x) < 1e-9, seed
    for other in (torch.randn(9, 3, 6, 6).double(), torch.randn(2, 3, 12, 12).double()):
        if "sizes" in small.left and other.shape[2:] != x.shape[2:]:
            with pytest.raises(RuntimeError, match="the inputs must have the sizes of the example"):
                small.model(other)
        elif accepts(model, other):
            assert difference(model, small.model, other) < 1e-9, (seed, other.shape)
    if "model" in small.left:  # it stays as it is, with the reason
        return
    read = {f"layers.{layer}" for number in model.used - {0} for layer in model.steps[number - 1].layers}

    def is_read(name: str) -> bool:
        return not name.startswith("layers.") or ".".join(name.split(".")[:2]) in read

    for name, unread in unread_units(small.model, x).items():
        assert names(small.left, name) or not is_read(name), (seed, name, unread, small.left)
    for name, constant in constant_units(small.model).items():
        carriers = 1 if name not in ("head", "second") else len(constant)  # outputs of the model stay
        assert len(constant) <= carriers or names(small.left, name) or not is_read(name), (seed, name, small.left)


@pytest.mark.filterwarnings("ignore:.*(outputs no longer depend|may ruin):UserWarning")
@pytest.mark.stress
@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_graphs_give_the_outputs_of_the_model_that_was_given_or_are_refused(block):
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        check_random_graph(seed)


@pytest.mark.filterwarnings("ignore:.*(outputs no longer depend|may ruin):UserWarning")
@pytest.mark.stress
@pytest.mark.parametrize("seed", range(cases(3, 300)))
@torch.no_grad()
def test_random_streams_behind_norms_give_the_outputs_of_the_model_that_was_given(seed):
    torch.manual_seed(seed)
    model, x = randomise_(RandomNet(seed, 6, streams=True)).double().eval(), torch.randn(2, 3, 6, 6).double()
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    for gate in model.modules():
        if isinstance(gate, Gate):
            gate.weight.uniform_(0.5, 1.5)
            gate.log_sigma2[torch.rand(len(gate.weight)) < 0.4] = 20
    small = compress(model, x, rewrite=seed % 3 > 0, round_to=1 + seed % 4)
    for other in (x, torch.randn(5, 3, 6, 6).double()):
        assert difference(model, small.model, other) < 1e-9


class Functional(nn.Module):
    """Products with parameters that no layer of torch holds, and no biases behind the first."""

    def __init__(self, second: str):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), second
        self.inner, self.w = nn.Module(), nn.Parameter(torch.randn(3, 8))
        self.inner.weight = nn.Parameter(torch.randn(3, 8))
        self.several = nn.ParameterList([torch.randn(3, 8)])
        self.flagged = nn.Module()
        self.flagged.weight, self.flagged.bias = nn.Parameter(torch.randn(3, 8)), False

    def forward(self, x):
        weights = {
            "inner": self.inner.weight,
            "w": self.w,
            "several": self.several[0],
            "flagged": self.flagged.weight,
        }
        return nn.functional.linear(relu(self.first(x)), weights[self.second])


@pytest.mark.parametrize("rewrite", [True, False])
@pytest.mark.parametrize(("second", "width"), [("inner", 5), ("w", 8), ("several", 8), ("flagged", 8)])
def test_constants_are_folded_into_a_product_without_a_bias_only_where_one_can_be(second, width, rewrite, tmp_path):
    torch.manual_seed(0)
    model, x = Functional(second).eval(), torch.randn(4, 6)
    with torch.no_grad():
        model.first.weight[:3], model.first.bias[:3] = 0.0, 1.0
    small = vbdrop.compress(model, x, rewrite=rewrite)
    assert small.model.first.out_features == (width if rewrite else 8)
    torch.testing.assert_close(small.model(x), model(x))
    small.save(tmp_path / "small")
    assert torch.equal(vbdrop.load(tmp_path / "small", model=Functional(second))(x), small.model(x))


def test_a_plan_that_cannot_be_applied_is_not_valid(monkeypatch):
    def refuse(plan, model):
        raise KeyError("first")

    monkeypatch.setattr("vbdrop.compression.removal.apply_plan_", refuse)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).eval(), torch.randn(4, 6)
    small = vbdrop.compress(model, x)
    assert small.left == {
        "model": "it cannot be made smaller, since then the plan cannot be applied, KeyError: 'first'"
    }
    assert torch.equal(small.model(x), model(x))

import copy

import pytest
import torch
from tests.compression.nets import MLP, NETS, difference, mask_units_, randomise_, shapes
from tests.convert.outside import Attention, TiedDecoder
from tests.processes import run
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.utils import prune

import vbdrop
from vbdrop.compression import Compressed, compress
from vbdrop.layers import Gate
from vbdrop.models import LeNet5


def converted(*modes) -> nn.Module:
    torch.manual_seed(1)
    model = randomise_(MLP())
    vbdrop.convert_(model, *modes)
    return model


X = torch.randn(3, 20)


@torch.no_grad()
def test_a_trained_model_becomes_plain_and_small_and_stays_itself():
    model = converted(vbdrop.Weights(), vbdrop.Units()).train()
    model.fc1.log_sigma2[:8] = 20
    model.fc3.gate.log_sigma2[:6] = 20
    before = copy.deepcopy(model)
    small = compress(model, X)
    assert isinstance(small, Compressed)
    assert type(small.model) is MLP
    assert not small.model.training
    assert (small.model.fc1.out_features, small.model.fc2.out_features) == (8, 6)
    assert difference(copy.deepcopy(model).eval(), small.model, X) < 1e-5
    assert not any(type(module).__module__.startswith("vbdrop") for module in small.model.modules())
    assert not any("vbdrop" in name for module in small.model.modules() for name in vars(module))
    assert model.training
    assert model.fc1.training
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch.compile uses it
@torch.no_grad()
def test_a_compiled_model_gives_the_small_one_of_its_class():
    model = randomise_(MLP())
    model.fc1.weight[:8] = 0
    model.fc1.weight[:, :12] = 0
    small = compress(torch.compile(model), X)
    assert small.plan == compress(model, X).plan
    assert small.model.fc1.weight.shape == (8, 8)
    assert difference(model, small.model, X) < 1e-5


@torch.no_grad()
def test_gates_on_the_first_input_select_features():
    model = converted(vbdrop.Units())
    model.fc1.gate.log_sigma2[::2] = 20
    small = compress(model, X)
    assert isinstance(small.model, fx.GraphModule)
    assert small.model.fc1.in_features == 10
    assert difference(model.eval(), small.model, X) < 1e-5
    kept = compress(model, X, rewrite=False)
    assert type(kept.model) is MLP
    assert kept.model.fc1.in_features == 20


@torch.no_grad()
def test_the_threshold_overrides_that_of_the_conversion():
    model = converted(vbdrop.Weights())
    model.fc1.log_sigma2[:8] = model.fc1.weight[:8].square().log() + 1  # log_alpha is 1
    assert compress(model, X).model.fc1.out_features == 16
    small = compress(model, X, threshold=0.5)
    assert small.model.fc1.out_features == 8
    assert small.threshold == 0.5


@torch.no_grad()
@pytest.mark.parametrize(
    ("units", "features"), [((8, 13, 13), 208), ((5, 10, 16), 160)], ids=["8-13-208-13", "5-10-160-16"]
)
def test_lenet_5_takes_the_shape_of_its_units(units, features):
    torch.manual_seed(0)
    model = randomise_(LeNet5())
    for layer, count in zip((model.conv1, model.conv2, model.fc1), units, strict=True):
        layer.weight[torch.randperm(len(layer.weight))[count:]] = 0
    x = torch.randn(2, 1, 28, 28)
    small = compress(model, x)
    conv1, conv2, hidden = units
    assert type(small.model) is LeNet5
    assert shapes(small.model) == {
        "conv1.weight": (conv1, 1, 5, 5),
        "conv2.weight": (conv2, conv1, 5, 5),
        "fc1.weight": (hidden, features),
        "fc2.weight": (10, hidden),
    }
    assert small.left == {}
    assert difference(model, small.model, x) < 1e-4


@torch.no_grad()
def test_a_model_can_be_compressed_twice():
    torch.manual_seed(2)
    for name in ("resnet", "lenet5"):
        model, x = randomise_(NETS[name].build()).double(), NETS[name].example().double()
        mask_units_(model, 0.5)
        once = compress(model, x)
        assert once.plan.program is not None
        again = compress(once.model, x)
        assert difference(model, again.model, x) < 1e-10
        assert sum(p.numel() for p in again.model.parameters()) <= sum(p.numel() for p in once.model.parameters())


def test_a_model_that_was_converted_and_not_trained_keeps_everything():
    model = converted(vbdrop.Weights(), vbdrop.Units())
    small = compress(model, X)
    assert type(small.model) is MLP
    assert shapes(small.model) == shapes(MLP())
    counts = small.summary()
    assert counts.before.weights == counts.after.weights == counts.after.nonzeros
    assert small.plan.keep == {}
    assert small.left == {}


def test_doubles_stay_doubles_and_batches_of_one_become_any():
    model = converted(vbdrop.Weights()).double()
    with torch.no_grad():
        model.fc1.log_sigma2[:, :15] = 20
    small = compress(model, torch.randn(1, 20).double())
    assert all(parameter.dtype == torch.float64 for parameter in small.model.parameters())
    for batch in (1, 2, 7):
        assert difference(model.eval(), small.model, torch.randn(batch, 20).double()) < 1e-12


def test_example_inputs_in_all_forms():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(5, 3)

        def forward(self, x, y, scale=1.0):
            return scale * self.a(x) + self.b(y)

    model, x, y = Two(), torch.randn(2, 4), torch.randn(2, 5)
    for small in (
        compress(model, (x, y)),
        compress(model, [x, y]),
        compress(model, {"y": y, "x": x}),
        compress(model, x, example_kwargs={"y": y}),
    ):
        assert difference(model, small.model, x, y) == 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.randn(2, 3), r"`example_inputs` must be inputs that the model accepts; with torch.float32 \[2, 3\] it"),
        (torch.zeros(2, 20, dtype=torch.int64), r"with torch.int64 \[2, 20\] it raised"),
        ((X, X), "it raised TypeError"),
        ({"y": X}, "it raised TypeError"),
        ((), "with no tensors it raised"),
    ],
)
def test_inputs_that_the_model_does_not_accept_are_named(inputs, message):
    with pytest.raises(ValueError, match=message):
        compress(MLP(), inputs)


def test_arguments_of_the_wrong_kind_are_named():
    with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got str"):
        compress("net", X)
    with pytest.raises(TypeError, match=r"`example_inputs` must be a tensor, .*; got int"):
        compress(MLP(), 3)
    with pytest.raises(TypeError, match=r"`example_kwargs` must be a dict .*; got list"):
        compress(MLP(), X, example_kwargs=[X])


def test_a_model_that_cannot_be_traced_is_masked_and_says_why():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(20, 4)

        def forward(self, x):
            return self.fc(x) if x.sum() > 0 else -self.fc(x)

    model = Branching()
    vbdrop.convert_(model, vbdrop.Weights())
    with torch.no_grad():
        model.fc.log_sigma2[0] = 20
    small = compress(model, X)
    assert type(small.model) is Branching
    assert type(small.model.fc) is nn.Linear
    assert tuple(small.model.fc.weight.shape) == (4, 20)
    assert not small.model.fc.weight[0].any()
    assert "torch.export cannot trace the model" in small.left["model"]
    assert "all shapes stay" in small.left["model"]
    assert small.summary().after.nonzeros == 60


SCRIPT = """
import sys, torch
from vbdrop.compression import Plan, apply_plan_
from tests.compression.nets import LeNet5
plan, state, x, y = torch.load(sys.argv[1], weights_only=True)
model = apply_plan_(Plan.from_json(plan), LeNet5()).eval()
model.load_state_dict(state)
with torch.no_grad():
    torch.testing.assert_close(model(x), y)
"""


@torch.no_grad()
def test_a_plan_rebuilds_the_small_model_in_a_new_process(tmp_path):
    model, x = randomise_(NETS["lenet5"].build()), NETS["lenet5"].example()
    mask_units_(model, 0.5)
    small = compress(model, x)
    torch.save((small.plan.to_json(), small.model.state_dict(), x, small.model(x)), tmp_path / "small.pt")
    done = run(SCRIPT, str(tmp_path / "small.pt"))
    assert done.code == 0, done.error


class Counting(nn.Module):
    """Writes a buffer, replaces another one, and counts for itself."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(20, 8), nn.Linear(8, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        self.seen += 1
        self.calls += 1
        return self.fc2(torch.relu(self.fc1(x))) * self.seen


@torch.no_grad()
def test_what_a_forward_writes_has_not_moved_on():
    model = randomise_(Counting())
    model.fc1.weight[:4] = 0
    small = compress(model, X).model
    assert shapes(small)["fc1.weight"] == (4, 20)
    assert (small.seen, small.calls) == (0, 0)
    assert difference(model, small, X) < 1e-5


class Options(nn.Module):
    """Takes something that is no tensor."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(20, 3)

    def forward(self, x, double=False, *, scale=None):
        y = self.fc(x)
        y = y if scale is None else y * scale
        return 2 * y if double else y


@torch.no_grad()
def test_what_is_no_tensor_may_have_another_value_later():
    model = randomise_(Options())
    model.fc.weight[:, :10] = 0
    small = compress(model, (X, False))
    assert type(small.model) is Options
    assert "`double`" in small.left["forward"]
    assert difference(model, small.model, X, True) == 0
    assert difference(model, small.model, X, scale=torch.ones(3, 1)) == 0
    without = compress(model, X)
    assert without.model.fc.in_features == 10
    assert without.left == {}


def test_inputs_by_name_only_are_named_where_they_cannot_be_taken_by_position(tmp_path):
    small = compress(Options(), X, example_kwargs={"scale": torch.ones(3, 1)})
    message = r"`example_inputs` by position cannot hold `scale`, which `forward` takes by name only"
    with pytest.raises(ValueError, match=message):
        _ = small.example_inputs
    with pytest.raises(ValueError, match=message):
        vbdrop.export(small, tmp_path / "net.pt2")
    assert compress(Options(), X, example_kwargs={"scale": None}).example_inputs == (X,)
    (x, y) = compress(Options(), {"double": False, "x": X}).example_inputs
    assert x is X
    assert y is False


def test_labels_in_the_example_are_named_where_they_cannot_be_taken_by_position(tmp_path):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(20, 3)

        def forward(self, x, mask=None, labels=None):
            y = self.fc(x)
            return y if labels is None else (nn.functional.cross_entropy(y, labels), y)

    small = compress(Tagger(), {"x": X, "labels": torch.zeros(len(X), dtype=torch.long)})
    with pytest.raises(ValueError, match=r"`labels`, which comes after one that the example skips.* without `labels`"):
        vbdrop.export(small, tmp_path / "net.pt2")


def test_pruning_that_is_not_permanent_is_named():
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
    prune.ln_structured(model[0], "weight", 0.5, 2, 0)
    with pytest.raises(ValueError, match=r"torch\.nn\.utils\.prune is active on '0'"):
        compress(model, torch.randn(2, 6))
    prune.remove(model[0], "weight")
    assert compress(model, torch.randn(2, 6)).model[0].out_features == 10


class TestBatchNorm:
    """Statistics that were gathered with noise: a network that is better without it, and its small model with it."""

    def noisy(self):
        model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
        vbdrop.convert_(model, vbdrop.Weights())
        with torch.no_grad():
            model[0].log_sigma2.copy_(model[0].weight.square().log())  # as much noise as signal
        x = torch.randn(2000, 6)
        for batch in x.split(100):
            model.train()(batch)
        return model, x

    def test_it_is_said_when_they_are_taken_as_they_are(self):
        model, x = self.noisy()
        with pytest.warns(UserWarning, match=r"BatchNorm statistics of '1' .*recalibrate=batches") as seen:
            compress(model, x[:4])
        assert seen[0].filename == __file__
        compress(model, x[:4], recalibrate=False)

    def test_with_data_the_small_model_has_statistics_without_noise(self):
        model, x = self.noisy()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        small = compress(model, x[:4], recalibrate=x).model
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        torch.testing.assert_close(small[1](small[0](x)).std(0), torch.ones(5), rtol=1e-2, atol=0)
        vbdrop.recalibrate_(model, x.tensor_split(8))
        torch.testing.assert_close(small(x), model.eval()(x))
        compress(model, x[:4])


@torch.no_grad()
@pytest.mark.parametrize("mode", [vbdrop.Weights(), vbdrop.Units()], ids=["weights", "units"])
def test_what_the_forward_reads_unmasked_stays_unmasked(mode):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), Attention(), nn.Linear(16, 4)), torch.randn(2, 5, 8)
    vbdrop.convert_(model, mode)
    for rate in (
        (model[1].qkv.log_sigma2[:24],) if isinstance(mode, vbdrop.Weights) else (model[1].qkv.gate.log_sigma2,)
    ):
        rate.fill_(20)
    small = compress(model, x)
    assert difference(model.eval(), small.model, x) < 1e-5
    assert small.left["1.qkv"].startswith("its weight is read outside its own forward")


@torch.no_grad()
def test_a_weight_that_is_read_masked_and_unmasked_is_refused():
    model, x = TiedDecoder(8, 6), torch.randn(5, 8)
    vbdrop.convert_(model, vbdrop.Weights())
    assert difference(copy.deepcopy(model).eval(), compress(model, x).model, x) < 1e-5  # nothing is dead yet
    model.encoder.log_sigma2[:, :4] = 5
    with pytest.raises(ValueError, match="the weights of 'encoder' are also read outside the layer's own forward"):
        compress(model, x)


class Branching(nn.Module):
    """Takes another way for large inputs, on which the removed channels count."""

    def __init__(self, limit: int, axis: int):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 4, 3, padding=1)
        self.limit, self.axis = limit, axis

    def forward(self, x):
        y = torch.relu(self.a(x))
        z = self.b(y)
        return z * y.mean(1, keepdim=True) if x.shape[self.axis] >= self.limit else z


@torch.no_grad()
def test_other_sizes_that_take_another_way_are_refused_or_right():
    model, x = randomise_(Branching(16, 3)), torch.randn(2, 3, 8, 8)
    model.a.weight[:2] = 0
    model.a.bias[:2] = 0
    small = compress(model, x)
    assert small.model.get_submodule("a").out_channels == 4
    assert "the forward asks for size < 16" in small.left["sizes"]
    assert difference(model, small.model, torch.randn(7, 3, 8, 8)) < 1e-5
    with pytest.raises(RuntimeError, match="the inputs must have the sizes of the example"):
        small.model(torch.randn(2, 3, 20, 20))
    again = compress(small.model, x).model
    with pytest.raises(RuntimeError, match="the inputs must have the sizes of the example"):
        again(torch.randn(2, 3, 20, 20))
    model.limit, model.axis = 2000, 0
    many = compress(model, x)
    assert difference(model, many.model, torch.randn(2048, 3, 4, 4)) < 1e-5


@torch.no_grad()
def test_a_constant_function_does_not_come_back_without_a_word():
    model = converted(vbdrop.Weights())
    model.fc2.log_sigma2.fill_(20)
    with pytest.warns(UserWarning, match="everything in 'fc2' is dead, and the outputs no longer depend on the inputs"):
        compress(model, X)
    plain = randomise_(nn.Sequential(nn.Linear(20, 4), nn.ReLU(), nn.Linear(4, 2)))
    plain[0].weight[:, 1:], plain[0].weight[1:] = 0, 0  # one weight is left in each layer, and they do not meet
    plain[2].weight[:, :3], plain[2].weight[1] = 0, 0
    with pytest.warns(UserWarning, match="everything in '0', '2' is dead, and the outputs no longer depend"):
        compress(plain, X)


class Autoencoder(nn.Module):
    """A variational autoencoder that draws its code in eval mode too."""

    def __init__(self):
        super().__init__()
        self.encoder, self.mean, self.log_std = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, x):
        hidden = torch.relu(self.encoder(x))
        mean, std = self.mean(hidden), self.log_std(hidden).exp()
        return self.decoder(mean + torch.randn_like(std) * std)


def test_a_model_that_draws_random_numbers_becomes_smaller():
    model, x = randomise_(Autoencoder()), torch.randn(4, 6)
    with torch.no_grad():
        for layer in (model.encoder, model.decoder[0]):
            layer.weight[:3], layer.bias[:3] = 0, 0
    small = vbdrop.compress(model, x).model
    assert (small.encoder.out_features, small.decoder[0].out_features) == (5, 5)
    torch.manual_seed(0)
    expected = model(x)
    torch.manual_seed(0)
    assert torch.allclose(small(x), expected, atol=1e-5)


class Scaled(nn.Linear):
    """A layer with a method of its own, which casts its inputs."""

    def forward(self, x):
        return nn.functional.linear(x.to(self.weight.dtype), self.weight, self.bias)

    def doubled(self, x):
        return 2 * self(x)


class CallsMethod(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = Scaled(6, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(torch.relu(self.layer.doubled(x)))


@pytest.mark.parametrize(
    ("model", "x"),
    [(CallsMethod(), torch.randn(4, 6)), (nn.Sequential(Scaled(6, 5), nn.Linear(5, 2)), torch.randint(9, (4, 6)))],
)
def test_a_layer_keeps_the_class_that_its_model_needs(model, x):
    small = vbdrop.compress(model.eval(), x)
    assert any(type(module) is Scaled for module in small.model.modules())
    assert torch.equal(small.model(x), model(x))
    assert small.left == {}


class CentredLinear(nn.Linear):
    """A layer that computes its weight."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight - self.weight.mean(), self.bias)


@pytest.mark.parametrize("limits", [{}, {"max_weights": 1000}])
def test_only_a_layer_that_is_cut_loses_the_class_that_computes_its_weight(limits, tmp_path):
    torch.manual_seed(0)
    model, x = nn.Sequential(CentredLinear(6, 5), CentredLinear(5, 4), nn.Linear(4, 2)).eval(), torch.randn(3, 6)
    with torch.no_grad():
        model[2].weight[:, :2] = 0.0
    fresh = copy.deepcopy(model)
    small = vbdrop.compress(model, x, **limits)
    assert [type(layer) for layer in small.model] == [CentredLinear, nn.Linear, nn.Linear]
    assert small.model[1].out_features == 2
    torch.testing.assert_close(small.model(x), model(x))
    assert small.summary().after.nonzeros == 30 + 10 + 4
    small.save(tmp_path / "small")
    assert torch.equal(vbdrop.load(tmp_path / "small", model=fresh)(x), small.model(x))


class Windows(nn.Module):
    """Attends in padded windows with a mask that it fills in place, by weights that it reads directly, as Swin does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.qkv, self.proj, self.last = (
            *(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 3)),
        )

    def forward(self, x):
        x = self.first(x)
        padded = F.pad(self.norm(x), (0, 0, 0, 2))
        q, k, v = F.linear(padded, self.qkv.weight, self.qkv.bias).chunk(3, -1)
        mask = x.new_zeros((8, 8))
        mask[:4, 4:] = -100.0
        attended = torch.softmax(q @ k.transpose(1, 2) + mask, -1) @ v
        return self.last(x + F.linear(attended, self.proj.weight, self.proj.bias)[:, :6])


@torch.no_grad()
def test_a_stream_is_cut_that_padded_windows_read_by_weights_outside_their_layers(tmp_path):
    torch.manual_seed(0)
    model, x = Windows(), torch.randn(2, 6, 5)
    report = vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    assert report.groups[0].weights == 1.0
    (gate,) = (module for module in model.modules() if isinstance(module, Gate) and len(module.weight) == 8)
    gate.log_sigma2[:3] = 20.0
    small = compress(model, x)
    assert small.model.first.out_features == 5
    assert difference(model.eval(), small.model, torch.randn(3, 6, 5)) < 1e-5
    small.save(tmp_path / "small.safetensors")
    assert difference(small.model, vbdrop.load(tmp_path / "small.safetensors", model=Windows()), x) < 1e-6


@torch.no_grad()
def test_widths_are_rounded_up_within_the_limits_and_come_back_from_a_file(tmp_path):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)), torch.randn(5, 20)
    vbdrop.convert_(model, vbdrop.Units())
    model[2].gate.log_sigma2.copy_(torch.linspace(-9.0, 5.0, 64))
    small = compress(model, x, round_to=16)
    assert compress(model, x).model[0].out_features % 16
    assert small.model[0].out_features == small.model[2].in_features == 48
    assert "multiples of 16" in small.left["0"]
    torch.testing.assert_close(small.model(x), model.eval()(x))
    small.save(tmp_path / "small")
    fresh = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    assert torch.equal(vbdrop.load(tmp_path / "small", model=fresh)(x), small.model(x))
    tight = compress(model, x, max_macs=1000, round_to=16)
    assert tight.model[0].out_features == 32  # 960 multiply-adds; with 33 units there would be 990
    assert compress(model, x, max_macs=1000).model[0].out_features == 33


@pytest.mark.parametrize("round_to", [0, -8, 2.0, True, "8"])
def test_a_width_is_rounded_to_a_whole_number(round_to):
    with pytest.raises(ValueError, match="`round_to` must be a number of units, an int >= 1; got"):
        compress(nn.Linear(2, 2), torch.zeros(1, 2), round_to=round_to)
    with pytest.raises(ValueError, match="`round_to` must be a number of units"):
        vbdrop.Target(macs=2, round_to=round_to)


def test_a_figure_that_is_no_number_is_named():
    with pytest.raises(TypeError, match="`evaluate` must return a number; got None"):
        compress(nn.Linear(2, 2), torch.zeros(1, 2), evaluate=lambda model: None)

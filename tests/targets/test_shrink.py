"""One call, as a new user would write it."""

import numpy as np
import pytest
import torch
from tests.stress import only_in_stress
from torch import nn
from torch.utils.data import DataLoader

import vbdrop
from vbdrop.targets.shrink import default_modes


def rings(n=400):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(n, 6))
    return x, (x[:, 0] * x[:, 1] > 0).astype(np.int64)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 2))


def test_numpy_arrays_become_a_small_model():
    x, y = rings()
    model = mlp()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = vbdrop.shrink(model, (x, y), valid=(x, y), target=vbdrop.Target(weights=5), epochs=20, lr=0.01)
    assert result.size == result.summary().after.nonzeros
    assert 0.95 * result.limit - 20 <= result.size <= result.limit == 1080 / 5
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())  # it is not changed
    with torch.no_grad():
        wrong = (result.model(torch.from_numpy(x).float()).argmax(1).numpy() != y).mean()
    assert result.error == pytest.approx(100 * wrong)
    assert result.error < 25  # chance is 50
    assert [point.stage for point in result.curve] == ["train"] * 4 + ["press"] * 10 + ["refine"] * 6


def test_a_loader_of_dicts_with_two_inputs():
    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right, self.head = nn.Linear(3, 16), nn.Linear(3, 16), nn.Linear(16, 2)

        def forward(self, left, right):
            return self.head(torch.relu(self.left(left) + self.right(right)))

    x, y = rings(200)
    x = torch.from_numpy(x).float()
    rows = [{"left": row[:3], "right": row[3:], "labels": label} for row, label in zip(x, y, strict=True)]
    torch.manual_seed(0)
    loader = DataLoader(rows, batch_size=50, shuffle=True)
    result = vbdrop.shrink(TwoInputs(), loader, target=vbdrop.Target(macs=2), epochs=6, lr=0.01)
    assert result.size <= result.limit
    assert result.error is None
    assert result.model(left=x[:5, :3], right=x[:5, 3:]).shape == (5, 2)


def test_regression_with_a_loss_of_ones_own():
    x, _ = rings(200)
    y = x[:, :1] * 2
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 1))
    target = vbdrop.Target(max_weights=40)
    result = vbdrop.shrink(
        model, (x, y), valid=(x, y), target=target, epochs=20, lr=0.02, loss=nn.SmoothL1Loss(), batch_size=20
    )
    assert result.size <= 40
    assert result.error < 0.5  # always zero would have 1.2


def test_a_single_logit_with_integer_targets_is_judged_by_its_loss():
    x, y = (torch.from_numpy(each) for each in rings(200))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 1)).double()
    loss = lambda outputs, targets: nn.functional.binary_cross_entropy_with_logits(  # noqa: E731
        outputs.squeeze(1), targets.to(outputs)
    )
    target = vbdrop.Target(within=0.1, train=0.0)
    result = vbdrop.shrink(model, (x, y), valid=(x, y), target=target, epochs=3, lr=0.01, loss=loss)
    assert result.error_before == pytest.approx(loss(model(x), y).item())
    assert result.error == pytest.approx(loss(result.model(x), y).item())


def test_batch_norm_is_that_of_the_small_network():
    x, y = rings()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 2))
    result = vbdrop.shrink(model, (x, y), valid=(x, y), target=vbdrop.Target(parameters=2), epochs=10, lr=0.01)
    assert result.size == sum(p.numel() for p in result.model.parameters()) <= result.limit
    assert result.error < 40


@only_in_stress
def test_a_time_is_reached_as_measured():
    x, y = rings(200)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 2))
    target = vbdrop.Target(latency=1.5, runtime="torch", train=0, refine=0.5)
    result = vbdrop.shrink(model, (x, y), target=target, epochs=2, lr=0.01)
    assert result.unit == "latency"
    assert result.limit == pytest.approx(result.before / 1.5)
    assert result.size < 1.3 * result.limit  # a busy machine may disturb the last measurement
    assert result.summary().after.macs < result.summary().before.macs
    assert "times faster" in str(result)


def test_only_some_layers_are_counted_and_made_smaller():
    x, y = rings(200)
    target = vbdrop.Target(weights=4, only=lambda module, name: name == "2")
    result = vbdrop.shrink(mlp(), (x, y), target=target, epochs=5, lr=0.01)
    assert result.before == 800
    layers = {layer.name: layer for layer in result.summary().layers}
    assert layers["2"].after.nonzeros <= 200
    assert layers["4"].after.nonzeros == layers["4"].after.weights


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "net"}, TypeError, "`model` must be a torch.nn.Module; got str"),
        ({"target": 5}, TypeError, "`target` must be a vbdrop.Target"),
        ({"epochs": 0}, ValueError, "`epochs` must be a number of epochs"),
        ({"lr": -1.0}, ValueError, "`lr` must be"),
        ({"batch_size": 0}, ValueError, "`batch_size` must be"),
        ({"train": []}, ValueError, "`train` must hold at least one batch"),
        ({"valid": DataLoader([])}, ValueError, "`valid` must hold at least one batch"),
        ({"target": vbdrop.Target(max_bytes=4)}, ValueError, "cannot be reached"),
        ({"target": vbdrop.Target(max_weights=1)}, ValueError, "cannot be reached: .* which leaves [1-9]"),
        ({"target": vbdrop.Target(weights=1e4)}, ValueError, "cannot be reached: .* which leaves [1-9]"),
        ({"target": vbdrop.Target(max_macs=1e9)}, ValueError, "not below the size"),
        ({"target": vbdrop.Target(max_latency="1 s", runtime="torch")}, ValueError, "not below the size of the model"),
        ({"target": vbdrop.Target(latency=1e6, runtime="torch")}, ValueError, "cannot be reached: it asks for"),
        ({"target": vbdrop.Target(within=1)}, ValueError, "needs validation data"),
        ({"modes": vbdrop.Rates()}, ValueError, "Rates removes nothing"),
        ({"loss": lambda outputs, targets: outputs}, TypeError, "`loss` must return one"),
        ({"optimizer": lambda groups: None}, TypeError, "`optimizer` must return"),
        ({"seed": "a"}, ValueError, "`seed` must be an int.*; got 'a'"),
        ({"seed": None}, ValueError, "`seed` must be an int.*; got None"),
        ({"seed": 2**60}, ValueError, "`seed` must be an int, at most"),
        ({"loss": "mse"}, TypeError, "`loss` must be a function .*; got 'mse'"),
        ({"optimizer": "adam"}, TypeError, "`optimizer` must be a class or function .*; got 'adam'"),
        ({"split": 3}, TypeError, "`split` must be a function .*; got 3"),
        ({"progress": "x"}, TypeError, "`progress` must be True, False or a function .*; got 'x'"),
        ({"checkpoint": 5}, TypeError, "`checkpoint` must be the path of a file, or None; got 5"),
        ({"checkpoint": "/"}, IsADirectoryError, "`checkpoint` must be a file; / is a folder"),
        ({"valid": torch.zeros(3, 2)}, TypeError, "`valid` must have inputs and targets, such as"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_trained(arguments, error, message):
    x, y = rings(50)
    seen = []
    given = {"model": mlp(), "train": (x, y), "target": vbdrop.Target(macs=2), "epochs": 3}
    given |= {"progress": lambda *point: seen.append(point)} | arguments
    with pytest.raises(error, match=message):
        vbdrop.shrink(given.pop("model"), given.pop("train"), **given)
    assert seen == []


X, Y = torch.rand(20, 6), torch.arange(20) % 2


class Named(nn.Module):
    """Takes its input by name."""

    def __init__(self):
        super().__init__()
        self.layers = mlp()

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(
    ("train", "error", "message"),
    [
        ((X, Y.float()), ValueError, r"targets float32 \[20\], and outputs float32 \[20, 2\]"),
        ((X, Y[:, None]), ValueError, r"targets int64 \[20, 1\]"),
        ((X, nn.functional.one_hot(Y)), ValueError, r"targets int64 \[20, 2\]"),
        ((X, Y + 5), ValueError, "out of bounds"),
        (((255 * X).byte(), Y), ValueError, r"inputs uint8 \[20, 6\]"),
        ((X, np.array(["cat", "dog"] * 10)), TypeError, "`train` must hold numbers; got an array of <U3"),
        (DataLoader([(x, "cat") for x in X]), TypeError, "targets tuple"),
        ({"x": X, "id": Y, "labels": Y}, TypeError, r"inputs {x: float32 \[20, 6\], id: int64 \[20\]}"),
    ],
)
def test_data_that_does_not_fit_is_named_before_anything_is_trained(train, error, message):
    seen = []
    with pytest.raises(error, match=message) as caught:
        vbdrop.shrink(
            Named(), train, target=vbdrop.Target(macs=2), epochs=3, progress=lambda *point: seen.append(point)
        )
    assert "`train` must" in str(caught.value)
    assert seen == []


def test_validation_data_that_does_not_fit_is_named_before_anything_is_trained():
    seen = []
    options = {"target": vbdrop.Target(macs=2), "epochs": 3, "progress": lambda *point: seen.append(point)}
    for valid in ((X, Y.float()), ((255 * X).byte(), Y)):
        with pytest.raises(ValueError, match="`valid` must fit the model and the loss; with inputs"):
            vbdrop.shrink(mlp(), (X, Y), valid=valid, **options)
    assert seen == []


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_data_that_is_not_finite_is_named(number):
    x = X.clone()
    x[13, 2] = number
    options = {"target": vbdrop.Target(weights=2), "epochs": 2}
    with pytest.raises(ValueError, match="`train` must hold finite numbers"):
        vbdrop.shrink(mlp(), (x, Y), **options)
    with pytest.raises(ValueError, match="`valid` must hold finite numbers"):
        vbdrop.shrink(mlp(), (X, Y), valid=(x, Y), **options)
    with pytest.raises(ValueError, match="`valid` must hold finite numbers"):
        vbdrop.shrink(mlp(), (X, X[:, :2]), valid=(X, x[:, 1:3]), **options)


def test_each_target_has_its_own_noise():
    names = {unit: type(default_modes(vbdrop.Target(**{unit: 2}))[0]).__name__ for unit in ("weights", "macs")}
    assert names == {"weights": "Weights", "macs": "Units"}
    assert type(default_modes(vbdrop.Target(max_bytes=10))[0]).__name__ == "Weights"


def test_widths_that_are_rounded_up_count_for_the_target():
    x, y = rings()
    target = vbdrop.Target(macs=2, round_to=8)
    result = vbdrop.shrink(mlp(), (x, y), target=target, epochs=6, lr=0.01)
    widths = [result.model.get_submodule(name).out_features for name in ("0", "2")]
    assert all(width % 8 == 0 or width == whole for width, whole in zip(widths, (40, 20), strict=True)), widths
    assert result.size == result.summary().after.macs <= result.limit == 1080 / 2
    assert vbdrop.Target.parse("macs=2,round_to=8") == target


def test_a_compiled_model_is_the_one_that_was_compiled():
    x, y = rings(100)
    arguments = {"target": vbdrop.Target(macs=2), "epochs": 3, "seed": 1}
    model = mlp()
    plain = vbdrop.shrink(model, (x, y), **arguments)
    compiled = vbdrop.shrink(torch.compile(model, backend="eager"), (x, y), **arguments)
    assert str(compiled.model) == str(plain.model)
    inputs = torch.from_numpy(x).float()
    assert torch.equal(compiled.model(inputs), plain.model(inputs))

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save as to_safetensors
from tests.processes import run
from torch import nn

import vbdrop
from vbdrop.compression.compress import compress
from vbdrop.compression.files.container import checksum
from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.model_file import load, save
from vbdrop.compression.planning.plan import ForwardProgram, Plan
from vbdrop.models import build


class Net(nn.Module):
    """Convolutions with batch-norm and a residual sum, a tied head, and a bias that compression has to make."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.branch = nn.Conv2d(channels, channels, 1)
        self.last = nn.Conv2d(channels, 6, 2, bias=False)
        self.head, self.other = nn.Linear(6, 4), nn.Linear(6, 4)
        self.other.weight = self.head.weight

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = x + torch.tanh(self.branch(x))
        x = torch.relu(self.last(x)).mean((2, 3))
        return self.head(x), self.other(x)


INPUTS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def masked(model: nn.Module, share: float = 0.3) -> nn.Module:
    """The model with random weights masked, and whole units of every layer dead."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            with torch.no_grad():
                module.weight.mul_(torch.rand_like(module.weight) < share)
                module.weight[::3] = 0
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.bias)
    return model.eval()


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "net.safetensors"


def outputs(model: nn.Module, inputs: torch.Tensor = INPUTS) -> torch.Tensor:
    with torch.no_grad():
        found = model(inputs)
    return torch.cat(found, 1) if isinstance(found, tuple) else found


def saved(path: Path, model: nn.Module, inputs: torch.Tensor = INPUTS, **options):
    small = compress(model, inputs)
    return small, small.save(path, **options)


@pytest.fixture(scope="module")
def net():
    """A small residual network, and its file."""
    small = compress(masked(Net()), INPUTS)
    return small, small.save


@pytest.fixture(scope="module")
def perceptron():
    """A small network of the table that selects its inputs, and its file."""
    model = masked(build("mlp", units=10), share=0.2)
    small = compress(model, torch.rand(2, 784))
    assert small.plan.program is not None
    return small, lambda path, **other: save(path, small.model, small.plan, **{"arguments": model.arguments, **other})


def test_a_small_model_is_rebuilt_exactly_in_a_fresh_instance(path, net):
    small, write = net
    size = write(path)
    fresh = Net()
    before = {name: value.clone() for name, value in fresh.state_dict().items()}
    loaded = load(path, model=fresh)
    assert torch.equal(outputs(loaded), outputs(small.model))
    assert not loaded.training
    assert size == path.stat().st_size
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())
    assert all(value.shape == small.model.state_dict()[name].shape for name, value in loaded.state_dict().items())


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(9, 9), nn.Linear(9, 9)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_weights_that_were_no_longer_tied_are_not_tied_silently(path):
    model = Tied()
    model.second.weight = nn.Parameter(torch.randn(9, 9))
    small, _ = saved(path, model, torch.rand(2, 9))
    with pytest.raises(FileFormatError, match=r"'first\.weight' and 'second\.weight' are one tensor"):
        load(path, model=Tied())
    fresh = Tied()
    fresh.second.weight = nn.Parameter(torch.empty(9, 9))
    assert torch.equal(outputs(load(path, model=fresh), torch.ones(1, 9)), outputs(small.model, torch.ones(1, 9)))


def test_a_tied_tensor_is_stored_once_and_is_tied_again(path):
    model = Tied()
    with torch.no_grad():
        model.first.weight[2, 3] = 0
    small, _ = saved(path, model, torch.rand(2, 9))
    with safe_open(path, "pt") as file:
        assert sorted(file.keys()) == ["first.bias", "first.weight", "second.bias"]
    loaded = load(path, model=Tied())
    assert loaded.first.weight is loaded.second.weight
    assert torch.equal(outputs(loaded, torch.ones(1, 9)), outputs(small.model, torch.ones(1, 9)))


def test_a_model_with_a_forward_of_its_own_is_rebuilt(path):
    inputs = torch.rand(3, 1, 28, 28)
    small, _ = saved(path, masked(build("lenet-300-100"), share=0.01), inputs)
    assert small.plan.program is not None
    assert torch.equal(outputs(load(path, model=build("lenet-300-100")), inputs), outputs(small.model, inputs))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("mlp", {"units": 12, "classes": 3}), ("lenet-5", {}), ("kingma-cnn", {"scale": 0.2}), ("vgg", {"width": 0.05})],
)
def test_a_network_of_the_papers_loads_without_a_model(path, name, arguments):
    model = masked(build(name, **arguments))
    inputs = torch.rand(2, 3, 32, 32) if name in ("vgg", "kingma-cnn") else torch.rand(2, 1, 28, 28)
    small, _ = saved(path, model, inputs)
    loaded = load(path)
    assert torch.equal(outputs(loaded, inputs), outputs(small.model, inputs))


def test_a_file_is_read_in_a_new_process_and_by_any_viewer(path, perceptron):
    small, write = perceptron
    write(path)
    code = f"""
import warnings
import torch, vbdrop.compression.files.model_file as pack
warnings.simplefilter("error")
print(pack.load({str(path)!r})(torch.full((1, 784), 0.5)).double().sum().item())
"""
    found = run(code)
    assert found.code == 0, found.error
    assert float(found.out) == outputs(small.model, torch.full((1, 784), 0.5)).double().sum().item()
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["vbdrop"])
        assert file.get_tensor("output.bias").shape == (10,)
    assert header["version"] == 1
    assert header["class"] == "MLP"


def test_half_precision_takes_half_the_bytes_and_stays_close(path):
    small, exact = saved(path, masked(build("lenet-5")), torch.rand(2, 1, 28, 28))
    half = small.save(path, dtype="float16")
    inputs = torch.rand(4, 1, 28, 28)
    loaded = load(path, model=build("lenet-5"))
    assert half < 0.6 * exact
    assert next(loaded.parameters()).dtype == torch.float32
    torch.testing.assert_close(outputs(loaded, inputs), outputs(small.model, inputs), rtol=2e-2, atol=2e-3)


@torch.no_grad()
def test_half_precision_holds_for_the_constants_of_a_new_forward(path):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 12, bias=False), nn.Linear(6, 12, bias=False), nn.Linear(12, 2)
            self.a.weight[:8], self.b.weight[4:] = 0, 0

        def forward(self, x):
            return self.c(torch.relu(self.a(x)) + torch.relu(self.b(x))) * torch.tensor([0.5, 2.0])

    model, x = Scaled().eval(), torch.randn(5, 6)
    small = compress(model, x, rewrite_gain=0.0)
    assert small.plan.program is not None
    small.save(path, dtype="float16")
    loaded = load(path, Scaled())
    assert {value.dtype for value in loaded.state_dict().values() if value.is_floating_point()} == {torch.float32}
    torch.testing.assert_close(loaded(x), model(x), rtol=1e-2, atol=1e-2)


def test_double_precision_is_exact(path):
    model = masked(Net()).double()
    small, _ = saved(path, model, INPUTS.double())
    assert torch.equal(
        outputs(load(path, model=Net().double()), INPUTS.double()), outputs(small.model, INPUTS.double())
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_fresh_model_takes_the_dtype_of_the_one_that_was_stored(path, dtype):
    small, _ = saved(path, masked(Net()).to(dtype), INPUTS.to(dtype))
    loaded = load(path, model=Net())
    assert {value.dtype for value in loaded.state_dict().values() if value.is_floating_point()} == {dtype}
    assert torch.equal(outputs(loaded, INPUTS.to(dtype)), outputs(small.model, INPUTS.to(dtype)))


class Shifted(nn.Module):
    """A network with a buffer that is not stored, and that may need another precision than the weights."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("shift", torch.tensor([1.0001, 2.0001, 3.0001, 4.0001]), persistent=False)

    def forward(self, x):
        return self.layer((1000 * (x.to(self.shift.dtype) - self.shift)).to(x.dtype))


@pytest.mark.parametrize("keeps_float32", [True, False])
def test_a_buffer_that_is_not_stored_has_the_dtype_that_it_had(path, keeps_float32):
    model = Shifted().half()
    if keeps_float32:
        model.shift = Shifted().shift
    x = torch.randn(5, 4).half()
    saved(path, model, x)
    loaded = load(path, Shifted())
    assert loaded.shift.dtype == model.shift.dtype
    assert torch.equal(outputs(loaded, x), outputs(model, x))


def test_a_model_of_several_dtypes_is_filled_as_it_is(path):
    mixed = nn.Sequential(nn.Linear(3, 3).double(), nn.Linear(3, 2))
    save(path, mixed)
    loaded = load(path, model=nn.Sequential(nn.Linear(3, 3).double(), nn.Linear(3, 2)))
    assert [layer.weight.dtype for layer in loaded] == [torch.float64, torch.float32]


def test_a_file_can_be_read_by_everybody(path):
    save(path, nn.Linear(2, 2))
    assert oct(path.stat().st_mode)[-3:] == "644"


def test_a_lenet_with_eighty_times_fewer_weights_is_fifty_five_times_smaller(path):
    """3,330 weights of 266,200, on the units that training leaves: about 400 pixels, 120 and 70 units."""
    model = build("lenet-300-100").eval()
    generator = torch.Generator().manual_seed(0)
    layers = [(model.hidden[0], 400, 120, 2500), (model.hidden[1], 120, 70, 650), (model.output, 70, 10, 180)]
    for layer, inputs, units, weights in layers:
        live = torch.rand(units, inputs, generator=generator)
        live = live >= live.flatten().topk(weights).values[-1]
        mask = torch.zeros_like(layer.weight, dtype=torch.bool)
        mask[:units, :inputs] = live
        with torch.no_grad():
            layer.weight.mul_(mask)
    small, exact = saved(path, model, torch.rand(2, 784))
    half = small.save(path, dtype="float16")
    dense = 4 * sum(value.numel() for value in build("lenet-300-100").parameters())
    assert dense == 1_066_440
    assert dense / exact >= 55
    assert dense / half >= 85


def test_a_model_that_was_not_made_smaller_can_be_stored(path):
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    save(path, model)
    assert torch.equal(
        load(path, nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))(torch.ones(1, 4)), model(torch.ones(1, 4))
    )


class Other(nn.Module):
    pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Other(), "for a model of class Net; got Other"),
        (None, r"of class Net; pass a fresh one: load\(path, model=Net\(\)\)"),
        (Net(channels=9), r"does not fit the model Net: '.*weight' must have the shape \[8, .*got \[9, "),
    ],
)
def test_a_file_for_another_model_says_so(path, net, model, message):
    net[1](path)
    with pytest.raises(FileFormatError, match=message):
        load(path, model)


def test_what_cannot_be_stored_is_named(path):
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"a": 1}

        def set_extra_state(self, state):
            pass

    with pytest.raises(ValueError, match="`model` must hold tensors only; '_extra_state' is a dict"):
        save(path, Extra(2, 2))
    with pytest.raises(ValueError, match="`dtype` must be None or one of float32, float16; got 'int8'"):
        save(path, nn.Linear(2, 2), dtype="int8")
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("wrong", [None, 3, b"net"])
def test_what_is_no_path_is_named(wrong):
    for act in (lambda: save(wrong, nn.Linear(2, 2)), lambda: load(wrong)):
        with pytest.raises(TypeError, match="`path` must be the path of a file, a str or a Path; got "):
            act()


def test_a_function_is_no_model(path):
    save(path, nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module or None; got function"):
        load(path, model=lambda: nn.Linear(2, 2))


@pytest.mark.parametrize("mode", [vbdrop.Weights(), vbdrop.Units(), vbdrop.Rates()])
def test_a_converted_model_is_told_to_be_a_fresh_one(path, mode):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    vbdrop.convert_(model, mode)
    compress(model, torch.zeros(1, 3)).save(path)
    with pytest.raises(FileFormatError, match=r"`model` is converted; pass a fresh one, before vbdrop\.convert_"):
        load(path, model=model)


def test_another_ending_is_refused_and_none_is_fine(tmp_path):
    with pytest.raises(ValueError, match=r"`path` must end in \.safetensors, the format of the file; got '.*bar\.pt'"):
        save(tmp_path / "bar.pt", nn.Linear(2, 2))
    assert list(tmp_path.iterdir()) == []
    save(tmp_path / "bar", nn.Linear(2, 2))
    assert load(tmp_path / "bar", nn.Linear(2, 2)).in_features == 2


def test_the_dtype_may_be_that_of_torch(tmp_path):
    model = nn.Linear(20, 20)
    for name, dtype in (("float16", torch.float16), ("float32", torch.float32)):
        by_name, by_torch = (tmp_path / f"{kind}.safetensors" for kind in ("name", "torch"))
        assert save(by_name, model, dtype=name) == save(by_torch, model, dtype=dtype)
        assert by_name.read_bytes() == by_torch.read_bytes()
    with pytest.raises(ValueError, match=r"`dtype` must be None or one of float32, float16; got torch\.int8"):
        save(by_name, model, dtype=torch.int8)


def test_a_file_that_cannot_be_finished_leaves_the_old_one(path, monkeypatch):
    save(path, nn.Linear(2, 2))
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        save(path, nn.Linear(3, 3))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"hidden": [1] * 1001}, "it would have 1,001 layers"),
        ({"hidden": "ab"}, "`hidden` must be a sequence of the units"),
        ({"hidden": [0]}, "number of units"),
        ({"units": 3}, "unexpected keyword"),
        ({}, "missing 1 required"),
    ],
)
def test_wild_sizes_are_refused_before_anything_is_built(path, perceptron, arguments, reason):
    perceptron[1](path, arguments=arguments)
    with pytest.raises(FileFormatError, match=f"a MLP cannot be built with .*{reason}"):
        load(path)


@pytest.mark.parametrize(
    ("hidden", "needed"), [([10**9, 10**9], "4,000,003,1"), ([3000, 3000], "45,"), ([10**12], "3,180,000,000,000,040")]
)
def test_a_file_that_would_need_more_memory_than_its_size_can_mean_is_refused(path, hidden, needed):
    save(path, build("mlp", units=10), arguments={"hidden": hidden})
    with pytest.raises(
        FileFormatError, match=rf"the model would take {needed}.* bytes of memory; 12,.*pass a fresh model"
    ):
        load(path)


def test_a_very_sparse_network_loads_without_a_model(path):
    model = masked(build("lenet-300-100"), share=0.01)
    size = save(path, model, arguments=model.arguments, dtype="float16")
    assert size < 15_000
    loaded = load(path)
    torch.testing.assert_close(
        outputs(loaded, torch.ones(1, 784)), outputs(model, torch.ones(1, 784)), rtol=0.01, atol=0.01
    )


def test_weights_of_a_recurrent_layer_that_do_not_fit_each_other_are_refused(path):
    """Its kernel reads past the end of a weight that a file has cut."""
    save(path, nn.Sequential(nn.LSTM(4, 3)))

    def cut(header, tensors):
        header["plan"] = {"cut": {"0.weight_hh_l0": [[12, 3], {"0": 0}]}}
        header["lists"], tensors["vbdrop:lists"] = [[1, 2]], torch.tensor([0, 128], dtype=torch.uint8)
        tensors["0.weight_hh_l0"] = tensors["0.weight_hh_l0"][:1].clone()

    assert isinstance(load(path, nn.Sequential(nn.LSTM(4, 3)))[0], nn.LSTM)
    edited(path, cut)
    with pytest.raises(FileFormatError, match=r"'weight_ih_l0' must have the shape \[0, 4\]; got \[12, 4\]"):
        load(path, nn.Sequential(nn.LSTM(4, 3)))


def test_a_recurrent_layer_is_rebuilt(path):
    model = nn.LSTM(4, 3, num_layers=2, batch_first=True)
    save(path, model)
    loaded = load(path, nn.LSTM(4, 3, num_layers=2, batch_first=True))
    x = torch.rand(2, 5, 4)
    assert torch.equal(loaded(x)[0], model(x)[0])


@pytest.mark.parametrize("value", [-1, 1.5, "1 GB"])
def test_the_memory_of_a_call_must_be_a_number_of_bytes(path, perceptron, value):
    perceptron[1](path)
    with pytest.raises(ValueError, match="`max_call_bytes` must be a number of bytes"):
        load(path, max_call_bytes=value)


def edited(path: Path, change) -> None:
    """The file with its header and tensors changed, and a checksum that fits."""
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["vbdrop"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- no mapping
    del header["sum"]
    change(header, tensors)
    header["sum"] = checksum(header, tensors)
    path.write_bytes(to_safetensors(tensors, {"vbdrop": json.dumps(header)}))


@pytest.mark.parametrize(
    "change",
    [
        lambda h, t: h["plan"]["set"]["hidden.0"].update(training=1),
        lambda h, t: h["plan"]["set"].update({"hidden.0": {"in_features": 3}}),
        lambda h, t: h["plan"]["set"].update({"nowhere": {"in_features": 3}}),
        lambda h, t: h["plan"]["cut"].update({"nowhere.weight": [[3, 3]]}),
        lambda h, t: h["plan"]["cut"].pop("hidden.0.bias"),
        lambda h, t: h["plan"]["nodes"].pop(),
        lambda h, t: h["plan"].pop("nodes"),
        lambda h, t: h["plan"]["nodes"].append(["y", "call_function", "aten.from_file.default", ["/etc/passwd"]]),
        lambda h, t: h["plan"]["nodes"].append(["y", "call_function", "os.system", ["true"]]),
        lambda h, t: h["plan"]["buffers"].update({"forward": ["int64", [1], 0]}),
        lambda h, t: h["lists"].append([3, 0]),
        lambda h, t: h["lists"].pop(),
        lambda h, t: h["lists"][0].__setitem__(0, 10**12),
        lambda h, t: t.pop("hidden.0.weight"),
        lambda h, t: t.update({"vbdrop:lists": t["vbdrop:lists"].float()}),
        lambda h, t: t.update({"hidden.0.weight": t["hidden.0.weight"][:-1]}),
        lambda h, t: t.update({"more": torch.ones(3)}),
        lambda h, t: t.update({"vbdrop:lists": torch.cat([t["vbdrop:lists"], t["vbdrop:lists"][:1]])}),
        lambda h, t: h.update(tied={"a": "b"}),
        lambda h, t: h.update(tied={"hidden.0.weight": "nothing"}),
        lambda h, t: h.update(dtype="int8"),
        lambda h, t: h.update(dtype="float16", uncast=[1]),
        lambda h, t: h.update(dtype="float16", uncast=["nothing"]),
    ],
)
def test_a_file_that_says_something_wrong_is_refused_even_with_a_right_checksum(path, perceptron, change):
    perceptron[1](path)
    load(path)
    edited(path, change)
    with pytest.raises(FileFormatError):
        load(path)


def test_no_code_of_a_file_is_run(path, tmp_path):
    """A program that reaches eval through the attributes of a module, and puts it into the place of a forward."""
    mark = tmp_path / "run"

    def node(name, target, *arguments):
        return {"name": name, "op": "call_module", "target": target, "args": list(arguments), "kwargs": {}}

    x = {"name": "x", "op": "placeholder", "target": "input", "args": [], "kwargs": {}}
    eval_ = {"name": "e", "op": "call_function", "target": "operator.getitem", "kwargs": {}}
    nodes = [
        x,
        node("b", "0.__init__.__globals__.get", "__builtins__"),
        eval_ | {"args": [{"node": "b"}, "eval"]},
        node("s", "0.__setattr__", "forward", {"node": "e"}),
        node("r", "0.forward", f"open({str(mark)!r}, 'w')"),
        x | {"name": "output", "op": "output", "target": "output", "args": [{"node": "x"}]},
    ]
    save(path, nn.Sequential(nn.Linear(4, 2)), Plan(program=ForwardProgram(nodes, {}, [])))
    with pytest.raises(FileFormatError, match=r"names the module .*which the model does not have"):
        load(path, model=nn.Sequential(nn.Linear(4, 2)))(torch.zeros(1, 4))
    assert not mark.exists()


def test_lists_of_indices_cost_about_a_bit_each(path, perceptron):
    small, write = perceptron
    write(path)
    with safe_open(path, "pt") as file:
        lists = file.get_tensor("vbdrop:lists")
    kept = {tuple(indices) for axes in small.plan.keep.values() for indices in axes.values()}
    assert lists.dtype == torch.uint8
    assert len(lists) < 784 / 8 + 4 * len(kept)


class Block(nn.Module):
    """The network of a file in version_0_1, under its name there."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.depth, self.back = nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Conv2d(6, 6, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        return self.head((x + self.back(torch.relu(self.depth(x)))).mean((2, 3)))


@pytest.mark.parametrize(
    ("name", "model", "shape", "tolerance"),
    [
        ("mlp", None, (2, 10), 1e-6),
        ("program", None, (2, 10), 2e-3),  # stored in float16
        ("block", Block, (2, 2, 5, 5), 1e-6),
    ],
)
@torch.no_grad()
def test_a_file_that_version_0_1_wrote_still_loads(name, model, shape, tolerance):
    folder = Path(__file__).parent / "version_0_1"
    expected = json.loads((folder / "outputs.json").read_text())[f"{name}.safetensors"]
    loaded = load(folder / f"{name}.safetensors", model=None if model is None else model())
    inputs = torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape)
    torch.testing.assert_close(loaded(inputs), torch.tensor(expected), rtol=0, atol=tolerance)

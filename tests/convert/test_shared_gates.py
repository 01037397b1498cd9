import copy

import pytest
import torch
from tests.compression.nets import NETS, difference, randomise_
from tests.compression.streams import Stream, tokens
from tests.stress import count, only_in_stress
from torch import nn

import vbdrop
from vbdrop.convert.shared_gates import plain_graph
from vbdrop.layers import Gate, Units


def converted(name="resnet", **options):
    torch.manual_seed(0)
    model, x = randomise_(NETS[name].build()), NETS[name].example()
    return model, x, vbdrop.convert_(model, Units(**options), example_inputs=x)


@torch.no_grad()
def kill_(model: nn.Module) -> None:
    """Let two gates of each group be dead, and the others have any value."""
    for gate in model.modules():
        if isinstance(gate, Gate):
            gate.weight.uniform_(0.5, 1.5)
            gate.log_sigma2[:2] = 9.0


def test_a_conversion_changes_no_output_and_is_undone_exactly():
    model, x, report = converted()
    original = randomise_(NETS["resnet"].build())
    original.load_state_dict({k: v for k, v in model.state_dict().items() if ".gate." not in k})
    assert difference(original, model.eval(), x) == 0
    kill_(model)
    plain = vbdrop.deterministic_(copy.deepcopy(model))
    assert not any(isinstance(module, Gate) for module in plain.modules())
    assert difference(model, plain, x) < 1e-6
    assert "100 % of the weights" in str(report)
    assert "stem.0: 8 gates, read by blocks.0.conv1.0, blocks.1.conv1.0" in str(report)


def test_the_kl_of_a_gate_counts_once_and_by_what_its_channel_costs():
    model, _, report = converted()
    gates = {name: module for name, module in model.named_modules() if isinstance(module, Gate)}
    assert len(gates) == len(report.groups[0].groups) == 6
    units = sum(len(gate.weight) for gate in gates.values())
    assert abs(sum(len(gate.weight) * gate.kl_factor for gate in gates.values()) / units - 1) < 1e-9
    factors = {group.units * group.weights for group in report.groups[0].groups}
    assert len(factors) > 1
    assert set(vbdrop.rates(model)) == set(gates)
    ids = [id(p) for group in vbdrop.param_groups(model) for p in group["params"]]
    assert len(ids) == len(set(ids)) == len(list(model.parameters()))


def test_a_dead_channel_of_a_stream_goes_from_all_of_its_layers_without_a_new_forward():
    for name in ("resnet", "densenet", "mobilenet", "unet", "vgg"):
        model, x, _ = converted(name)
        kill_(model.eval())
        small = vbdrop.compress(model, x)
        assert small.plan.program is None
        assert small.left == {}
        assert difference(model, small.model, x) < 1e-5
        if name == "resnet":
            assert small.model.stem[0].out_channels == small.model.blocks[1].conv2[0].out_channels == 6
            assert small.model.blocks[3].conv1[0].in_channels == small.model.head.in_features == 10


def test_a_model_in_training_loses_gates_and_their_optimizer_state_once():
    model, x, _ = converted()
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=1e-3))
    elbo = vbdrop.ELBO(model, n_train=10)
    model.train()
    elbo(model(x).square().mean()).backward()
    optimizer.step()
    kill_(vbdrop.recalibrate_(model, [x]).eval())
    before = copy.deepcopy(model)
    plan = vbdrop.compress(model, x, rewrite=False).plan
    vbdrop.apply_plan_(plan, model, optimizer)
    assert difference(before, model, x) < 1e-5
    gates = [module for module in model.modules() if isinstance(module, Gate)]
    assert [len(gate.weight) for gate in gates] == [6, 6, 6, 10, 10, 10]
    assert all(optimizer.state[gate.weight]["exp_avg"].shape == gate.weight.shape for gate in gates)
    model.train()
    elbo(model(x).square().mean()).backward()
    optimizer.step()


def test_what_a_filter_leaves_out_keeps_what_it_reads():
    model, _, report = converted(filter_fn=lambda module, name: name != "head")
    names = [group.name for group in report.groups[0].groups]
    assert "blocks.2.conv2.0" not in names
    assert "stem.0" in names
    assert report.left["blocks.3.conv1.0"] == "its inputs are kept: head reads them and has no gates"
    assert model.head.__class__ is nn.Linear


def test_a_state_dict_without_gates_starts_them_afresh():
    model, _, _ = converted()
    plain = {name: tensor for name, tensor in model.state_dict().items() if ".gate." not in name}
    kill_(model)
    model.load_state_dict(plain)
    assert all(bool((gate.weight == 1).all()) for gate in model.modules() if isinstance(gate, Gate))


def test_the_graph_is_that_of_the_plain_model():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    vbdrop.convert_(model, vbdrop.Weights())
    found = plain_graph(model, {"input": torch.zeros(2, 3)})
    assert [node.name for node in found.traced.graph.nodes if node.op == "call_function"] == [
        "linear",
        "relu",
        "linear_1",
    ]
    assert "log_sigma2" in model[0]._parameters


def test_the_kl_can_count_by_multiply_adds():
    factors = {}
    for cost in ("weights", "macs"):
        model, _, report = converted(cost=cost)
        gates = [module for module in model.modules() if isinstance(module, Gate)]
        units = sum(len(gate.weight) for gate in gates)
        assert abs(sum(len(gate.weight) * gate.kl_factor for gate in gates) / units - 1) < 1e-9
        costs = {group.name: getattr(group, cost) for group in report.groups[0].groups}
        ratio = {gate.kl_factor / costs[group.name] for gate, group in zip(gates, report.groups[0].groups, strict=True)}
        assert max(ratio) - min(ratio) < 1e-12
        factors[cost] = [gate.kl_factor for gate in gates]
    assert factors["weights"] != factors["macs"]
    with pytest.raises(ValueError, match="`cost` of Units must be 'weights' or 'macs'; got 'time'"):
        Units(cost="time")


class Encoded(nn.Module):
    """Tokens in torch's own encoder."""

    def __init__(self, norm_first):
        super().__init__()
        self.tokens = nn.Embedding(20, 12)
        layer = nn.TransformerEncoderLayer(12, 3, 18, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 4)

    def forward(self, tokens):
        return self.head(self.norm(self.encoder(self.tokens(tokens))))


@pytest.mark.stress
@pytest.mark.parametrize("norm_first", [False, True][: count(1, 2)])
def test_a_stream_of_torchs_own_encoder_loses_its_channels(norm_first, tmp_path):
    torch.manual_seed(0)
    model, x = randomise_(Encoded(norm_first)).eval(), tokens(2, 7)
    plain = copy.deepcopy(model)
    report = vbdrop.convert_(model, Units(), example_inputs=x)
    assert report.groups[0].weights == 1.0
    assert ("encoder.layers.0.self_attn" in report.converted) != norm_first
    assert difference(plain, model, x) < 1e-6
    loss = model.train()(x).square().sum()
    loss.backward()
    assert all(bool(gate.log_sigma2.grad.any()) for gate in model.modules() if isinstance(gate, Gate))
    model.eval()
    kill_(model)
    wanted = model(x)
    small = vbdrop.compress(model, x, rewrite=False)
    shapes = {name: tuple(tensor.shape) for name, tensor in small.model.state_dict().items()}
    assert shapes["tokens.weight"] == (20, 10)
    for layer in ("encoder.layers.0", "encoder.layers.1"):
        assert shapes[f"{layer}.self_attn.in_proj_weight"] == (12, 10)
        assert shapes[f"{layer}.linear1.weight"] == (16, 10)
    for size in ((2, 7), (5, 3)):
        assert difference(model, small.model, tokens(*size)) < 1e-5
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=Encoded(norm_first))
    assert difference(small.model, loaded, x) == 0
    vbdrop.apply_plan_(small.plan, model)  # in the middle of training
    assert (model(x) - wanted).abs().max() < 1e-5
    assert difference(model, vbdrop.deterministic_(copy.deepcopy(model)), x) < 1e-5


class AlongChannels(nn.Module):
    """Channel attention by a convolution over the channels, as in ECA-Net."""

    def __init__(self):
        super().__init__()
        self.first, self.along, self.last = nn.Conv2d(3, 6, 1), nn.Conv1d(1, 1, 3, padding=1), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        x = self.first(x)
        weights = self.along(x.mean((2, 3)).unsqueeze(1)).sigmoid()
        return self.last(x * weights.transpose(1, 2).unsqueeze(3))


def test_a_convolution_over_channels_keeps_them_and_says_why():
    report = vbdrop.convert_(AlongChannels(), Units(), example_inputs=torch.randn(2, 3, 4, 4))
    reason = "aten.conv1d.default works along the channels, whose order has to stay"
    assert report.groups[0].left["along (conv1d)"] == reason


def test_an_attention_with_three_projections_has_no_gates_on_what_enters():
    class Separate(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 6), nn.Linear(6, 2)
            self.attention = nn.MultiheadAttention(6, 2, kdim=3, vdim=3, batch_first=True)

        def forward(self, x):
            y = self.first(x)
            return self.last(y + self.attention(y, x, x, need_weights=False)[0])

    report = vbdrop.convert_(Separate(), Units(), example_inputs=torch.randn(2, 4, 3))
    assert "attention.out_proj" in report.converted
    assert "attention" not in report.converted


class Pooled(nn.Module):
    """An image stream behind norms over channels and positions, as in PoolFormer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 9, 2, 2)
        self.norms = nn.ModuleList(nn.GroupNorm(1, 9) for _ in range(3))
        self.up, self.down, self.head = nn.Conv2d(9, 12, 1), nn.Conv2d(12, 9, 1), nn.Linear(9, 2)

    def forward(self, x):
        x = self.stem(x)
        x = x + nn.functional.avg_pool2d(self.norms[0](x), 3, 1, 1)
        x = x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))
        return self.head(self.norms[2](x).mean((2, 3)))


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_stream_behind_group_norms_with_one_group_loses_its_channels(rewritten, tmp_path):
    torch.manual_seed(0)
    model, x = randomise_(Pooled()).eval(), torch.randn(4, 3, 8, 8)
    report = vbdrop.convert_(model, Units(), example_inputs=x)
    assert report.groups[0].weights == 1.0
    kill_(model)
    small = vbdrop.compress(model, x, rewrite_gain=0.0 if rewritten else 0.1)
    assert (type(small.model) is Pooled) != rewritten
    shapes = {name: tuple(tensor.shape) for name, tensor in small.model.state_dict().items()}
    assert (shapes["stem.weight"][0], shapes["up.weight"][:2], shapes["head.weight"]) == (7, (10, 7), (2, 7))
    for other in (x, torch.randn(2, 3, 8, 8)):
        assert difference(model, small.model, other) < 1e-5
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=Pooled())
    assert difference(small.model, loaded, x) == 0
    if not rewritten:  # another channel goes, of a norm that counts already
        with torch.no_grad():
            small.model.stem.weight[3], small.model.stem.bias[3], small.model.norms[1].weight[3] = 0, 0, 0
            small.model.norms[0].weight[3], small.model.norms[2].weight[3] = 0, 0
            small.model.down.weight[3] = 0
            for bias in (small.model.down.bias, *(norm.bias for norm in small.model.norms)):
                bias[3] = 0
        again = vbdrop.compress(small.model, x)
        assert again.model.stem.out_channels == 6
        assert difference(small.model, again.model, x) < 1e-6


STREAMS = [  # `make test` takes the first three
    *({"norm": "layer"}, {"behind": True, "norm": "rms"}, {"tied": True}),
    *({"norm": "rms"}, {"norm": "unscaled"}, {"behind": True}),
]


def stream(**options):
    """A transformer with a third of its channels, heads and neurons dead."""
    torch.manual_seed(0)
    model = randomise_(Stream(**options)).eval()
    plain = copy.deepcopy(model)
    report = vbdrop.convert_(model, Units(), example_inputs=tokens(2, 7))
    assert difference(plain, model, tokens(2, 7)) < 1e-6
    with torch.no_grad():
        for gate in model.modules():
            if isinstance(gate, Gate):
                gate.weight.uniform_(0.5, 1.5)
                gate.log_sigma2[: len(gate.weight) // 3] = 9.0
    return model, report


@pytest.mark.stress
@pytest.mark.parametrize("options", STREAMS[: count(3, len(STREAMS))], ids=str)
def test_a_residual_stream_behind_norms_loses_its_channels_everywhere(options, tmp_path):
    model, report = stream(**options)
    assert (report.groups[0].weights, report.groups[0].macs) == (1.0, 1.0)
    small = vbdrop.compress(model, tokens(2, 7))
    assert type(small.model) is Stream
    shapes = {name: tuple(tensor.shape) for name, tensor in small.model.state_dict().items()}
    assert shapes["tokens.weight"] == (20, 8)
    assert shapes["positions"] == (1, 16, 8)
    assert shapes["head.weight"][1] == 8
    for block in ("blocks.0", "blocks.1"):
        wanted = {"qkv": (24, 8), "out": (8, 8), "up": (16, 8), "down": (8, 16)}
        assert {name: shapes[f"{block}.{name}.weight"] for name in wanted} == wanted
        assert shapes[f"{block}.norm1.scale"] == (8,)
    for size in ((2, 7), (1, 3), (5, 16)):
        assert difference(model, small.model, tokens(*size)) < 2e-5
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=Stream(**options))
    assert difference(small.model, loaded, tokens(3, 5)) == 0


@only_in_stress
def test_a_stream_becomes_smaller_in_the_middle_of_training_twice():
    model, _ = stream()
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=1e-3))
    for width in (8, 6):
        before = copy.deepcopy(model).eval()
        plan = vbdrop.compress(model, tokens(2, 7), rewrite=False).plan
        vbdrop.apply_plan_(plan, model, optimizer)
        assert difference(before, model.eval(), tokens(3, 6)) < 2e-5
        assert model.tokens.weight.shape == (20, width)
        model.train()(tokens(2, 7)).square().sum().backward()
        optimizer.step()
        assert all(bool(p.isfinite().all()) for p in model.parameters())
        with torch.no_grad():
            model.blocks[0].norm1.gate.all_gates[0].log_sigma2[:2] = 9.0


def test_a_stream_that_is_returned_keeps_its_channels_and_says_so():
    model = Stream()
    model.head = nn.Identity()
    report = vbdrop.convert_(model, Units(), example_inputs=tokens(2, 7))
    assert "norm" not in report.groups[0].norms
    assert "blocks.0.norm1" not in report.converted
    assert report.left["blocks.0.qkv"].startswith("its inputs are kept: the model returns them")


def test_norms_are_gated_only_if_they_are_chosen():
    model = Stream().eval()
    report = vbdrop.convert_(model, Units(filter_fn=lambda m, _: type(m) is nn.Linear), example_inputs=tokens(2, 7))
    assert report.groups[0].norms == {}
    assert "aten.layer_norm.default reads every channel" in report.left["blocks.0.qkv"]


class Adapted(nn.Module):
    """A frozen layer and two thin ones that are trained, side by side."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class AdaptedLinear(nn.Linear):
    """The same in one class of its own."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.down, self.up = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))

    def forward(self, x):
        return super().forward(x) + x @ self.down.T @ self.up.T


def test_adapters_lose_the_channels_of_their_frozen_base():
    torch.manual_seed(0)
    model, x = nn.Sequential(Adapted(5, 9), nn.ReLU(), Adapted(9, 3)).eval(), torch.randn(4, 5)
    report = vbdrop.convert_(model, Units(), example_inputs=x)
    assert {"2.base", "2.down"} <= set(report.converted)
    assert [group.readers for group in report.groups[0].groups if group.units == 9] == [["2.base", "2.down"]]
    kill_(model)
    small = vbdrop.compress(model, x, rewrite=False)
    assert (small.model[0].base.out_features, small.model[0].up.out_features) == (7, 7)
    assert not small.model[2].base.weight.requires_grad
    assert difference(model, small.model, x) < 1e-6


def test_an_adapter_in_a_class_of_its_own_is_left_with_the_reason():
    model = nn.Sequential(AdaptedLinear(5, 9), nn.ReLU(), nn.Linear(9, 3))
    report = vbdrop.convert_(model, Units(), example_inputs=torch.randn(4, 5))
    assert "AdaptedLinear is a subclass that may compute something else" in report.left["0"]
    assert "2" in report.converted


class Routed(nn.Module):
    """Runs an expert on the rows that are routed to it, so that the sizes depend on values."""

    def __init__(self):
        super().__init__()
        self.router, self.expert = nn.Linear(4, 2), nn.Linear(4, 4)

    def forward(self, x):
        rows = (self.router(x).argmax(-1) == 0).nonzero().squeeze(1)
        return x.index_add(0, rows, self.expert(x[rows])) if len(rows) else x


@pytest.mark.parametrize("inputs", [torch.ones(3, 4), {"x": torch.ones(3, 4)}], ids=["tensor", "dict"])
def test_a_model_that_cannot_be_traced_is_refused_with_what_to_do_instead(inputs):
    model = Routed()
    with pytest.raises(ValueError, match=r"torch\.export cannot trace.*data-dependent.*Without `example_inputs` each"):
        vbdrop.convert_(model, Units(), example_inputs=inputs)
    assert type(model.expert) is nn.Linear
    assert len(vbdrop.convert_(model, Units()).converted) == 2

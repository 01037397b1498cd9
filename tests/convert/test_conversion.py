import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import vbdrop
from vbdrop import Rates, Units, Weights, convert_, deterministic_
from vbdrop.layers import LAYERS, Gate, NoisyLayer, Variational
from vbdrop.layers import Linear as NoisyLinear


def small_net() -> nn.Sequential:
    """A convolution with more channels than an image, one with a norm behind it, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(6, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 5, 3, bias=False),
        nn.Flatten(),
        nn.Linear(5 * 4, 3),
    )


def small_batch() -> torch.Tensor:
    return torch.randn(4, 6, 6, 6)


def everything(model: nn.Module) -> tuple[list[object], dict[str, torch.Tensor]]:
    """What a model is: classes, identities, attributes in their order, and a copy of every value."""
    structure: list[object] = []
    for name, module in model.named_modules():
        structure += [name, id(module), type(module), list(module.__dict__)]
        structure += [(key, id(value)) for key, value in module._parameters.items()]
        structure += [(key, id(value)) for key, value in module._modules.items()]
        structure += [(key, v) for key, v in module.__dict__.items() if isinstance(v, bool | int | float | str | tuple)]
    return structure, {key: value.clone() for key, value in model.state_dict().items()}


def assert_unchanged(model: nn.Module, before: tuple[list[object], dict[str, torch.Tensor]]) -> None:
    structure, values = everything(model)
    assert structure == before[0]
    assert list(values) == list(before[1])
    for key, value in values.items():
        assert torch.equal(value, before[1][key]), key


def rate_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return {
        f"{name}.{key}": parameter
        for name, module in model.named_modules()
        if isinstance(module, Variational)
        for key, parameter in module._parameters.items()
        if key in module.wide_parameters
    }


@torch.no_grad()
def disturb_(model: nn.Module) -> None:
    """Let a model look as after a training: about half of the weights and gates dead, and gates away from 1."""
    for module in model.modules():
        if isinstance(module, Gate):
            module.weight.copy_(torch.empty_like(module.weight).uniform_(0.5, 1.5))
        if isinstance(module, Variational):
            for entry in module.variational():
                if entry.log_sigma2 is not None:
                    spread = 8 * (torch.rand_like(entry.log_sigma2) < 0.5).float() - 4
                    entry.log_sigma2.copy_(spread + entry.threshold + entry.mean.square().log())


MODES = {
    "Weights": (Weights(),),
    "Units": (Units(outputs=lambda module, name: name in ("0", "5")),),
    "Rates": (Rates(per="unit"),),
    "Weights and Units": (Weights(), Units(outputs=lambda module, name: name == "3")),
    "Units and Rates": (Units(), Rates(per="layer")),
}
by_mode = pytest.mark.parametrize("modes", MODES.values(), ids=MODES)

NEW_NAMES = {
    "Weights": {"0.log_sigma2", "3.log_sigma2", "5.log_sigma2"},
    "Units": {
        *("0.output_gate.weight", "0.output_gate.log_sigma2", "3.gate.weight", "3.gate.log_sigma2"),
        *("5.gate.weight", "5.gate.log_sigma2", "5.output_gate.weight", "5.output_gate.log_sigma2"),
    },
    "Rates": {"0.log_alpha", "3.log_alpha", "5.log_alpha"},
}


class TestWhatStays:
    @by_mode
    def test_modules_and_parameters_are_the_same_objects(self, modes):
        model = small_net()
        model[3].weight.requires_grad_(False)
        modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
        convert_(model, *modes)
        for name, module in modules.items():
            assert model.get_submodule(name) is module
        for name, parameter in parameters.items():
            assert model.get_parameter(name) is parameter
        assert not model[3].weight.requires_grad
        assert all(parameter.requires_grad for parameter in rate_parameters(model).values())

    @pytest.mark.parametrize("kind", NEW_NAMES)
    def test_the_new_parameters_have_their_names(self, kind):
        model = small_net()
        plain = set(model.state_dict())
        convert_(model, *MODES[kind])
        assert set(model.state_dict()) - plain == NEW_NAMES[kind]
        assert plain <= set(model.state_dict())

    @by_mode
    def test_hooks_survive(self, modes):
        model = small_net()
        seen = []
        model[0].register_forward_hook(lambda module, args, out: seen.append("after"))
        model[5].register_forward_pre_hook(lambda module, args: seen.append("before"))
        convert_(model, *modes)
        model(small_batch())
        deterministic_(model)
        model(small_batch())
        assert seen == ["after", "before"] * 2

    @by_mode
    def test_the_mode_stays_and_new_modules_take_it(self, modes):
        model = small_net().eval()
        convert_(model, *modes)
        assert not any(module.training for module in model.modules())

    @by_mode
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_the_eval_output_is_that_of_the_trained_model(self, modes, dtype):
        """Also where weights are tiny: none may start dead. The last layer makes their death visible."""
        model = small_net().eval().to(dtype)
        with torch.no_grad():
            for scale, row in zip((1e-4, 1e-8, 1e-12, 1e-16, 1.0), model[3].weight, strict=True):
                row.copy_(scale * row.sign() * (0.5 + torch.rand_like(row)))
            model[5].weight.view(3, 5, 4).mul_(torch.tensor([1e4, 1e8, 1e12, 1e16, 1.0], dtype=dtype)[None, :, None])
        x = small_batch().to(dtype)
        with torch.no_grad():
            before = model(x)
            convert_(model, *modes)
            assert torch.equal(model(x), before)
        assert all(rate.dead == 0 for rate in vbdrop.rates(model).values())

    @by_mode
    def test_a_plain_state_dict_loads_strictly_and_starts_the_rates_afresh(self, modes):
        plain, model, x = small_net().eval(), small_net().eval(), small_batch()
        convert_(model, *modes)
        with torch.no_grad():
            for parameter in rate_parameters(model).values():
                parameter.add_(7.0)
        model.load_state_dict(plain.state_dict())
        assert torch.equal(model(x), plain(x))
        fresh = copy.deepcopy(plain)
        convert_(fresh, *modes)
        for key, value in fresh.state_dict().items():
            assert torch.equal(model.state_dict()[key], value), key

    @by_mode
    def test_a_state_dict_that_lacks_a_whole_layer_is_refused(self, modes):
        model = small_net()
        state = {key: value for key, value in model.state_dict().items() if not key.startswith("5.")}
        convert_(model, *modes)
        with pytest.raises(RuntimeError, match=r'Missing key.*"5\.weight", "5\.bias", "5\.(log|gate)'):
            model.load_state_dict(state)

    @by_mode
    def test_a_converted_state_dict_loads_into_another_converted_model(self, modes):
        models = small_net().eval(), small_net().eval()
        for model in models:
            convert_(model, *modes)
        disturb_(models[0])
        models[1].load_state_dict(models[0].state_dict())
        x = small_batch()
        assert torch.equal(models[0](x), models[1](x))


class TestWhatIsConverted:
    def test_a_module_used_twice_is_converted_once(self):
        shared = nn.Linear(4, 4)
        model = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 2))
        report = convert_(model, Weights(), Units())
        assert report.converted == {"0": "Weights, Units", "3": "Weights, Units"}
        assert model[0] is model[2] is shared
        assert model.train()(torch.randn(3, 4)).isfinite().all()

    @pytest.mark.parametrize(
        "order", [(Weights(), Units()), (Units(), Weights())], ids=["Weights first", "Units first"]
    )
    def test_weights_and_units_combine_in_one_call_and_in_two(self, order):
        one, two = small_net().eval(), small_net().eval()
        two.load_state_dict(one.state_dict())
        assert convert_(one, *order).converted["3"] == ", ".join(type(mode).__name__ for mode in order)
        for mode in order:
            convert_(two, mode)
        assert set(one.state_dict()) == set(two.state_dict())
        assert {"3.log_sigma2", "3.gate.log_sigma2"} <= set(one.state_dict())
        disturb_(one)
        two.load_state_dict(one.state_dict())
        x = small_batch()
        assert torch.equal(one(x), two(x))
        assert torch.equal(vbdrop.kl(one), vbdrop.kl(two))

    def test_different_layers_take_different_modes(self):
        model = small_net()
        convert_(
            model, Weights(filter_fn=lambda m, n: isinstance(m, nn.Linear)), Rates(filter_fn=lambda m, n: n != "5")
        )
        assert rate_parameters(model).keys() == {"0.log_alpha", "3.log_alpha", "5.log_sigma2"}

    def test_a_converted_model_is_left_and_reported(self):
        model = small_net()
        convert_(model, Weights(filter_fn=lambda m, n: n == "0"))
        report = convert_(model, Rates())
        assert report.converted == {"3": "Rates", "5": "Rates"}
        assert report.left["0"] == "already converted with Weights"
        convert_(model, Units(filter_fn=lambda m, n: n == "3"))
        report = convert_(model, Units())
        assert report.converted == {"5": "Units"}
        assert report.left["3"] == "already has gates"

    def test_a_filter_sees_names_and_modules(self):
        model = small_net()
        seen = []
        convert_(model, Weights(filter_fn=lambda module, name: seen.append((name, module)) or name == "3"))
        assert seen == [("0", model[0]), ("3", model[3]), ("5", model[5])]
        assert type(model[0]) is nn.Conv2d
        assert type(model[5]) is nn.Linear

    def test_a_layer_of_the_users_own_converts_and_comes_back(self, monkeypatch):
        class Scaled(nn.Linear):
            def forward(self, input):
                return 2 * super().forward(input)

        class NoisyScaled(NoisyLinear, Scaled):
            def forward(self, input):
                return 2 * super().forward(input)

        model = nn.Sequential(Scaled(4, 3), nn.Linear(3, 2))
        assert convert_(model, Weights()).left == {
            "0": "Scaled is a subclass that may compute something else; vbdrop.register_layer can add it"
        }
        monkeypatch.setitem(LAYERS, Scaled, NoisyScaled)
        convert_(model, Weights(log_sigma2=0.0))
        x = torch.randn(2, 4)
        before = model.eval()(x)
        assert type(deterministic_(model)[0]) is Scaled
        assert torch.equal(model(x), before)


class TestUnits:
    @pytest.mark.parametrize(
        ("channels", "gated"), [((1, 16, 8), ["1"]), ((3, 4, 8), []), ((3, 5, 8), ["1"]), ((16, 8, 4), ["1"])]
    )
    def test_the_images_own_channels_get_no_gate(self, channels, gated):
        first, second, third = channels
        model = nn.Sequential(
            nn.Conv2d(first, second, 1), nn.Conv2d(second, third, 1), nn.Flatten(), nn.Linear(third, 2)
        )
        report = convert_(model, Units())
        assert [*report.converted] == [*gated, "3"]
        assert [name for name, module in model.named_modules() if isinstance(module, Gate)] == [
            f"{name}.gate" for name in [*gated, "3"]
        ]
        assert set(report.left.values()) == {"its input channels are those of the image"}
        assert model.get_submodule("3.gate").weight.shape == (third,)

    def test_a_second_convolution_is_not_the_first_one_because_that_is_left(self):
        model = nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, 16, 1)), nn.Conv2d(16, 8, 1))
        assert convert_(model, Units()).converted == {"1": "Units"}

    def test_a_linear_layer_selects_its_input_features(self):
        model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
        convert_(model, Units())
        assert model[0].gate.weight.tolist() == [1.0, 1.0, 1.0]

    def test_output_gates_are_chosen_by_their_own_filter(self):
        model = small_net()
        report = convert_(model, Units(filter_fn=lambda m, n: n == "5", outputs=lambda m, n: n in ("0", "3")))
        assert report.converted == dict.fromkeys(("0", "3", "5"), "Units")
        gates = {name: module.weight.numel() for name, module in model.named_modules() if isinstance(module, Gate)}
        assert gates == {"0.output_gate": 8, "3.output_gate": 5, "5.gate": 20}


def raises_at(name: str):
    def choose(module: nn.Module, at: str) -> bool:
        if at == name:
            raise ZeroDivisionError(at)
        return True

    return choose


def interrupts(module: nn.Module, name: str) -> bool:
    if name == "5":
        raise KeyboardInterrupt
    return True


FAILURES = {
    "raises in the middle": ((Weights(filter_fn=raises_at("5")),), ZeroDivisionError, "5"),
    "is interrupted": ((Rates(filter_fn=interrupts),), KeyboardInterrupt, None),
    "gives None": ((Units(filter_fn=lambda m, n: None),), TypeError, "`filter_fn` of Units must return a bool.*None"),
    "gives an int": ((Rates(filter_fn=lambda m, n: 1),), TypeError, "`filter_fn` of Rates must return a bool.*gave 1"),
    "gives numpy's": ((Weights(filter_fn=lambda m, n: np.bool_(True)),), TypeError, "must return a bool"),
    "outputs gives a str": ((Units(outputs=lambda m, n: n),), TypeError, "`outputs` of Units must return a bool.*'0'"),
    "takes one argument": ((Weights(filter_fn=lambda n: True),), TypeError, "argument"),
    "of the second mode": ((Weights(), Units(outputs=raises_at("5"))), ZeroDivisionError, "5"),
    "chooses nothing": (
        (Units(), Weights(filter_fn=lambda m, n: False)),
        ValueError,
        "nothing to convert with Weights.*not chosen by filter_fn",
    ),
    "second of two of a kind": ((Weights(), Rates()), ValueError, "nothing to convert with Rates.*already"),
}


def of_dtype(dtype: torch.dtype) -> nn.Linear:
    layer = nn.Linear(2, 2, bias=False)
    layer.weight = nn.Parameter(torch.ones(2, 2, dtype=dtype), requires_grad=False)
    return layer


class TestFailures:
    @pytest.mark.parametrize("case", FAILURES)
    @pytest.mark.parametrize("earlier", [None, Weights, Units], ids=["plain", "after Weights", "after Units"])
    def test_a_failure_leaves_the_model_as_it_was(self, case, earlier):
        modes, error, message = FAILURES[case]
        model = nn.ModuleDict({"net": small_net(), "encoder": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)})
        net, x = model["net"].eval(), small_batch()
        if earlier is not None:
            convert_(model, earlier(filter_fn=lambda module, name: name == "net.3"))
            disturb_(model)
        before, output = everything(model), net(x)
        renamed = [
            copy_with_filters(mode, lambda choose: lambda module, name: choose(module, name.removeprefix("net.")))
            for mode in modes
        ]
        with pytest.raises(error, match=message):
            convert_(model, *renamed)
        assert_unchanged(model, before)
        assert torch.equal(net(x), output)

    def test_a_layer_that_fails_by_itself_leaves_the_model_as_it_was(self, monkeypatch):
        class Fragile(nn.Linear):
            pass

        class NoisyFragile(NoisyLinear, Fragile):
            def add_noise_(self, mode, **chosen):
                super().add_noise_(mode, **chosen)
                raise MemoryError("no room")

        monkeypatch.setitem(LAYERS, Fragile, NoisyFragile)
        model = nn.Sequential(nn.Linear(4, 4), Fragile(4, 4))
        before = everything(model)
        with pytest.raises(MemoryError, match="no room"):
            convert_(model, Weights(), Units())
        assert_unchanged(model, before)

    @pytest.mark.parametrize(
        ("build", "reason"),
        [
            (nn.ReLU, "it has no parameters"),
            (lambda: nn.BatchNorm1d(3), "the model: no noisy layer for BatchNorm1d"),
            (lambda: of_dtype(torch.int32), "the model: its weight is torch.int32"),
            (lambda: of_dtype(torch.complex64), "the model: its weight is torch.complex64"),
            (lambda: nn.Sequential(*(nn.PReLU() for _ in range(8))), r"4: no noisy layer for PReLU; and 3 more\)"),
        ],
    )
    def test_a_model_with_nothing_to_convert_is_an_error_with_the_reasons(self, build, reason):
        model = build()
        before = everything(model)
        with pytest.raises(ValueError, match=f"`model` has nothing to convert with Weights .*{reason}"):
            convert_(model, Weights())
        assert_unchanged(model, before)

    @pytest.mark.parametrize(
        ("inputs", "got"), [(torch.zeros(3, 4), r"a tensor of shape \(3, 4\)"), ({"x": torch.zeros(3)}, "a dict")]
    )
    def test_inputs_without_their_name_are_told_it(self, inputs, got):
        wanted = rf"`modes` must be .* got {got}; inputs of the model are passed by name, example_inputs="
        with pytest.raises(TypeError, match=wanted):
            convert_(small_net(), Units(), inputs)

    @pytest.mark.parametrize("modes", [(), (Weights,), ([Weights(), Units()],), ("weights",), (None,), (Weights(), 3)])
    def test_wrong_modes_are_named(self, modes):
        model = small_net()
        before = everything(model)
        with pytest.raises(TypeError, match=r"`modes` must be one or more of vbdrop.Weights\(\).*got"):
            convert_(model, *modes)
        assert_unchanged(model, before)

    @pytest.mark.parametrize("call", [lambda m: convert_(m, Weights()), deterministic_])
    def test_something_that_is_no_module_is_named(self, call):
        with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got list"):
            call([nn.Linear(2, 2)])

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Rates(per="neuron"), "`per` of Rates must be one of 'weight', 'unit', 'layer'; got 'neuron'"),
            (lambda: Weights(prior="laplace"), "`prior` must be one of 'hierarchical'.*got 'laplace'"),
            (lambda: Units(prior=3), "`prior` must be a name or a .*Prior; got 3"),
            (lambda: Weights(filter_fn="conv"), "`filter_fn` of Weights must be a function.*got 'conv'"),
            (lambda: Units(outputs=True), "`outputs` of Units must be a function.*got True"),
        ],
    )
    def test_a_wrong_part_of_a_mode_is_named_and_the_model_unchanged(self, make, message):
        model = small_net()
        before = everything(model)
        with pytest.raises((TypeError, ValueError), match=message):
            convert_(model, make())
        assert_unchanged(model, before)


def copy_with_filters(mode, wrap):
    """The mode with its filters wrapped."""
    fields = {name: wrap(value) for name, value in vars(mode).items() if name in ("filter_fn", "outputs") and value}
    return type(mode)(**fields)


class ResidualBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 6, 3, padding="same", groups=2), nn.BatchNorm2d(6)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        out = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return self.head(self.up((x + out).relu()).mean((-2, -1)))


class SequenceClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.conv = nn.Conv1d(6, 6, 3, padding=2, padding_mode="circular", dilation=2)
        self.lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, tokens):
        features = self.conv(self.embed(tokens).transpose(1, 2)).transpose(1, 2)
        return self.head(self.lstm(features)[0][:, -1])


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens))[:, 0])


NETS = {
    "residual block": (ResidualBlock, lambda: torch.randn(8, 6, 5, 5)),
    "LSTM classifier": (SequenceClassifier, lambda: torch.randint(11, (8, 7))),
    "transformer encoder": (Attentive, lambda: torch.randint(11, (8, 7))),
}
ROUND_TRIPS = {
    "Weights": (Weights(),),
    "Weights and Units": (Weights(), Units(outputs=lambda module, name: True)),
    "Rates": (Rates(per="weight"),),
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("modes", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
class TestRoundTrip:
    def test_a_step_is_finite_and_reaches_every_rate(self, net, modes):
        build, batch = NETS[net]
        model = build().train()
        convert_(model, *modes)
        optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=1e-2))
        elbo = vbdrop.ELBO(model, n_train=100)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        loss = elbo(nn.functional.cross_entropy(model(batch()), torch.arange(8) % 3))
        loss.backward()
        optimizer.step()
        assert loss.isfinite()
        rates = rate_parameters(model)
        assert len(rates) > 0
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.isfinite().all(), name
        for name, rate in rates.items():
            assert (rate.grad != 0).all(), name
            assert (rate != before[name]).all(), name

    def test_it_comes_back_with_the_outputs_of_eval(self, net, modes):
        build, batch = NETS[net]
        model, x = build().train(), batch()
        types = {name: type(module) for name, module in model.named_modules()}
        keys, parameters = list(model.state_dict()), dict(model.named_parameters())
        convert_(model, *modes)
        model(x)  # the norms see some noise
        disturb_(model)
        dead = {name: entry.dead() for name, entry in vbdrop.objective.noisy_tensors(model)}
        expected = model.eval()(x)
        assert deterministic_(model) is model
        torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-5)
        assert {name: type(module) for name, module in model.named_modules()} == types
        assert list(model.state_dict()) == keys
        assert all(model.get_parameter(name) is parameter for name, parameter in parameters.items())
        for name, mask in dead.items():
            if "gate" not in name:
                weight = parameters[name if name in parameters else f"{name}.weight"]
                assert torch.equal(weight == 0, mask) or modes[1:], name
        fresh = build().eval()
        fresh.load_state_dict(model.state_dict())
        with torch.no_grad():
            torch.testing.assert_close(fresh(x), expected, atol=1e-5, rtol=1e-5)


class TestDeterministic:
    def test_a_plain_model_is_returned_as_it_is(self):
        model = small_net()
        before = everything(model)
        assert deterministic_(model) is model
        assert_unchanged(model, before)

    def test_a_threshold_overrules_the_layers_own(self):
        model = nn.Linear(4, 1, bias=False)
        convert_(model, Weights(threshold=3.0))
        with torch.no_grad():
            model.weight.fill_(1.0)
            model.log_sigma2.copy_(torch.tensor([[-2.0, 0.0, 2.0, 4.0]]))
        assert deterministic_(copy.deepcopy(model)).weight.tolist() == [[1, 1, 1, 0]]
        assert deterministic_(copy.deepcopy(model), threshold=1).weight.tolist() == [[1, 1, 0, 0]]
        assert deterministic_(copy.deepcopy(model), threshold=float("inf")).weight.tolist() == [[1, 1, 1, 1]]

    def test_a_threshold_overrules_the_gates_own_and_folds_their_means(self):
        model = nn.Linear(3, 2)
        convert_(model, Units(outputs=lambda module, name: True))
        with torch.no_grad():
            model.weight.fill_(1.0)
            model.bias.copy_(torch.tensor([10.0, 20.0]))
            model.gate.weight.copy_(torch.tensor([2.0, 3.0, 5.0]))
            model.gate.log_sigma2.copy_(model.gate.weight.square().log() + torch.tensor([-4.0, -1.0, 1.0]))
            model.output_gate.weight.copy_(torch.tensor([0.5, 7.0]))
        own = deterministic_(copy.deepcopy(model))
        assert own.weight.tolist() == [[1.0, 1.5, 0.0], [14.0, 21.0, 0.0]]
        assert own.bias.tolist() == [5.0, 140.0]
        assert deterministic_(model, threshold=-2.0).weight.tolist() == [[1.0, 0.0, 0.0], [14.0, 0.0, 0.0]]

    def test_rates_never_drop_anything(self):
        model = nn.Linear(4, 3)
        weight = model.weight.detach().clone()
        convert_(model, Rates(rate=0.999))
        assert torch.equal(deterministic_(model, threshold=-100.0).weight, weight)

    @pytest.mark.parametrize(("threshold", "error"), [("3", TypeError), (True, TypeError), (float("nan"), ValueError)])
    def test_a_wrong_threshold_is_named_and_changes_nothing(self, threshold, error):
        model = small_net()
        convert_(model, Weights())
        before = everything(model)
        with pytest.raises(error, match="`threshold` must be a number or None; got"):
            deterministic_(model, threshold)
        assert_unchanged(model, before)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda model: parametrizations.weight_norm(model[2]), "2 was changed, its parameters are parametrized"),
            (lambda model: prune.l1_unstructured(model[2], "weight", 0.5), "2 was changed, its weight is not a plain"),
            (lambda model: setattr(model[2], "weight", model[0].weight), "0 was changed, its parameters are shared"),
            (lambda model: setattr(model[2], "__class__", OnesOwnLinear), "2 was changed, OnesOwnLinear is a subclass"),
        ],
        ids=["parametrized", "pruned", "tied", "another class"],
    )
    def test_what_was_changed_after_the_conversion_is_refused_whole(self, change, reason):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        convert_(model, Weights(), Units())
        change(model)
        before = everything(model)
        with pytest.raises(ValueError, match=reason):
            deterministic_(model)
        assert_unchanged(model, before)
        assert isinstance(model[0], NoisyLayer)

    def test_a_parametrization_that_was_removed_again_is_no_hindrance(self):
        model = nn.Linear(4, 4)
        convert_(model, Weights())
        parametrizations.orthogonal(model)
        parametrize.remove_parametrizations(model, "weight")
        assert type(deterministic_(model)) is nn.Linear


class OnesOwnLinear(NoisyLinear):
    pass


@pytest.mark.parametrize("what", ["weight", "log_sigma2"])
def test_weights_that_are_not_numbers_do_not_become_zeros(what):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    convert_(model, Weights())
    with torch.no_grad():
        getattr(model[2], what)[0, 1] = torch.nan
    with pytest.raises(ValueError, match=r"not numbers \(NaN\), in '2'"):
        deterministic_(model)
    assert type(model[0]) is not nn.Linear

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vbdrop import Rates, Units, Weights, convert_, kl
from vbdrop.layers import NoisyTensor, Variational
from vbdrop.objective import noisy_tensors
from vbdrop.priors import Hierarchical, LogUniform


def by_hand(theta: Tensor, log_sigma2: Tensor) -> Tensor:
    """Half of log(1 + theta^2 / sigma^2), summed in float64."""
    return 0.5 * (1 + theta.double().square() / log_sigma2.double().exp()).log().sum()


class TestValue:
    def test_it_is_the_sum_over_all_weights_and_gates(self):
        model = nn.Sequential(nn.Conv2d(5, 4, 3), nn.Flatten(), nn.Linear(4, 3))
        convert_(model, Weights(), Units(outputs=lambda module, name: name == "0"))
        with torch.no_grad():
            for _, entry in noisy_tensors(model):
                entry.log_sigma2.uniform_(-8, 4)
        conv, linear = model[0], model[2]
        pairs = [(layer.weight, layer.log_sigma2) for layer in (conv, linear, conv.output_gate, linear.gate)]
        assert kl(model).item() == pytest.approx(sum(by_hand(*pair) for pair in pairs).item(), rel=1e-6)

    @pytest.mark.parametrize(("per", "alphas"), [("layer", 1), ("unit", 6), ("weight", 4 * 3 * 5)])
    def test_a_shared_rate_counts_for_each_of_its_weights(self, per, alphas):
        layer = nn.Conv1d(6, 4, 5, groups=2)
        convert_(layer, Rates(per=per, rate=0.2))
        assert layer.log_alpha.numel() == alphas
        log_alpha = torch.tensor(0.25, dtype=torch.float64).log()
        assert kl(layer).item() == pytest.approx(60 * 0.5 * F.softplus(-log_alpha).item(), rel=1e-6)

    def test_rates_of_units_weigh_as_much_as_their_weights(self):
        layer = nn.Linear(3, 5)
        convert_(layer, Rates(per="unit"))
        with torch.no_grad():
            layer.log_alpha.copy_(torch.tensor([-3.0, 0.0, 2.0]))
        full = layer.log_alpha.detach().expand(5, 3)
        assert kl(layer).item() == pytest.approx((0.5 * F.softplus(-full)).sum().item(), rel=1e-6)

    def test_each_prior_gives_its_own(self):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        convert_(
            model, Weights(filter_fn=lambda m, n: n == "0"), Weights("log_uniform", filter_fn=lambda m, n: n == "1")
        )
        hierarchical, log_uniform = (
            prior.kl(layer.weight, layer.log_sigma2).sum()
            for prior, layer in zip((Hierarchical(), LogUniform()), model, strict=True)
        )
        torch.testing.assert_close(kl(model), hierarchical + log_uniform)

    def test_a_shared_module_counts_once(self):
        shared = nn.Linear(4, 4)
        convert_(shared, Weights(), Units())
        assert torch.equal(kl(nn.Sequential(shared, nn.ReLU(), shared)), kl(shared))

    def test_layers_of_two_precisions_add_up(self):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).double(), nn.Linear(3, 3).bfloat16())
        convert_(model, Weights())
        total = kl(model)
        assert total.dtype == torch.float64
        expected = sum(by_hand(layer.weight, layer.log_sigma2).item() for layer in model)
        assert total.item() == pytest.approx(expected, rel=1e-6)

    def test_it_is_the_same_in_training_and_in_eval(self):
        model = nn.Linear(4, 4)
        convert_(model, Weights(log_sigma2=3.0), Units())
        assert torch.equal(kl(model.train()), kl(model.eval()))

    def test_compiled_it_is_the_same(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        convert_(model, Weights(), Units())
        compiled = torch.compile(lambda: kl(model), fullgraph=True, backend="aot_eager")
        total = compiled()
        torch.testing.assert_close(total, kl(model))
        found = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
        expected = torch.autograd.grad(kl(model), list(model.parameters()), allow_unused=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)

    def test_a_model_without_noise_is_an_error(self):
        with pytest.raises(ValueError, match=r"`model` has no converted layer, so it has no KL; call vbdrop\.convert_"):
            kl(nn.Linear(2, 2))
        with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got Tensor"):
            kl(torch.ones(3))


class Twice(nn.Module):
    """One layer used twice, one that can be skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.skipped, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor, skip: bool = False) -> Tensor:
        x = self.shared(self.shared(x).tanh()).tanh()
        if not skip:
            x = self.skipped(x).tanh()
        return self.head(x)


X, Y = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3
SCALE = 1 / 50


@pytest.fixture(params=["Weights", "Weights and Units", "Rates"])
def model(request) -> Twice:
    """In float64, so that a gradient can be compared with a sum of two to the last digits."""
    model = Twice().double()
    convert_(
        model,
        *{"Weights": [Weights()], "Weights and Units": [Weights(), Units()], "Rates": [Rates("layer")]}[request.param],
    )
    with torch.no_grad():
        for _, entry in noisy_tensors(model):
            entry.rate.uniform_(-6, -1)
    return model


def nll(model: Twice, seed: int = 0, **options: bool) -> Tensor:
    torch.manual_seed(seed)
    return F.cross_entropy(model(X.double(), **options), Y)


def plain_nll(model: Twice, seed: int = 0, **options: bool) -> Tensor:
    """The same loss by the plain formula, which knows nothing of a KL."""
    for module in model.modules():
        module.fused = False
    try:
        return nll(model, seed, **options)
    finally:
        for module in model.modules():
            del module.fused


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


def kl_gradients(model: nn.Module) -> dict[str, Tensor]:
    """By the paper's formula, a half of log(1 + 1 / alpha) a weight."""
    total = torch.zeros((), dtype=torch.float64)
    for _, entry in noisy_tensors(model):
        if entry.log_sigma2 is not None:
            total = total + 0.5 * torch.log(1 + entry.mean.square() / entry.log_sigma2.exp()).sum()
        else:
            total = total + entry.mean.numel() * 0.5 * torch.log(1 + 1 / entry.log_alpha.exp())
    return gradients(model, total)


def assert_gradients(found: dict[str, Tensor], *parts: tuple[float, dict[str, Tensor]]) -> None:
    for name, gradient in found.items():
        expected = sum(factor * part[name] for factor, part in parts)
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12, msg=lambda text, n=name: f"{n}: {text}")


class TestGradient:
    """It reaches the parameters only through the tensor that `kl` returns."""

    def test_a_module_used_twice_gets_it_once(self, model):
        found = gradients(model, nll(model) + SCALE * kl(model))
        assert_gradients(found, (1, gradients(model, plain_nll(model))), (SCALE, kl_gradients(model)))
        assert kl_gradients(model)["shared.weight"].abs().max() > 0 or isinstance(model.shared.noise, Rates)

    def test_two_forwards_in_a_step_get_it_once(self, model):
        loss = nll(model, seed=1) + nll(model, seed=2) + SCALE * kl(model)
        both = [(1, gradients(model, plain_nll(model, seed=seed))) for seed in (1, 2)]
        assert_gradients(gradients(model, loss), *both, (SCALE, kl_gradients(model)))

    def test_accumulation_adds_what_was_asked_for(self, model):
        for seed in (1, 2, 3):
            ((nll(model, seed=seed) + SCALE * kl(model)) / 3).backward()
        found = {name: parameter.grad for name, parameter in model.named_parameters()}
        each = [(1 / 3, gradients(model, plain_nll(model, seed=seed))) for seed in (1, 2, 3)]
        assert_gradients(found, *each, (SCALE, kl_gradients(model)))

    def test_a_scaled_loss_scales_it(self, model):
        found = gradients(model, 65536 * (nll(model) + SCALE * kl(model)))
        parts = (65536, gradients(model, plain_nll(model))), (65536 * SCALE, kl_gradients(model))
        assert_gradients(found, *parts)

    def test_the_nll_alone_has_none_of_it(self, model):
        likelihood = nll(model)
        kl(model)
        assert_gradients(gradients(model, likelihood), (1, gradients(model, plain_nll(model))))

    def test_the_kl_alone_has_nothing_else(self, model):
        nll(model)
        assert_gradients(gradients(model, kl(model)), (1, kl_gradients(model)))

    def test_a_skipped_layer_gets_it_too(self, model):
        found = gradients(model, nll(model, skip=True) + SCALE * kl(model))
        assert_gradients(found, (1, gradients(model, plain_nll(model, skip=True))), (SCALE, kl_gradients(model)))
        assert found["skipped.bias"].eq(0).all()
        rates = [found[f"skipped.{name}"] for name, _ in model.skipped.named_parameters() if "log_" in name]
        assert all(rate.ne(0).all() for rate in rates)

    def test_a_graph_that_is_kept_gives_it_again(self, model):
        loss = kl(model)
        loss.backward(retain_graph=True)
        loss.backward()
        found = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
        assert_gradients(found, (2, kl_gradients(model)))


class TestNames:
    def test_a_tensor_has_its_modules_name(self):
        model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
        convert_(model, Weights(), Units(filter_fn=lambda m, n: n == "b"))
        assert [name for name, _ in noisy_tensors(model)] == ["a", "b", "b.gate"]
        assert [name for name, _ in noisy_tensors(model["b"])] == ["weight", "gate"]

    def test_several_tensors_of_a_module_are_told_apart(self):
        class Pair(Variational):
            def __init__(self) -> None:
                super().__init__()
                self.log_sigma2 = nn.Parameter(torch.zeros(2))
                self.first, self.second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

            def variational(self):
                for name in ("first", "second"):
                    yield NoisyTensor(name, getattr(self, name), Hierarchical(), None, self.log_sigma2)

        assert [name for name, _ in noisy_tensors(nn.Sequential(Pair()))] == ["0.first", "0.second"]
        assert [name for name, _ in noisy_tensors(Pair())] == ["first", "second"]
        assert kl(Pair()).item() == pytest.approx(4 * 0.5 * torch.tensor(2.0).log().item())

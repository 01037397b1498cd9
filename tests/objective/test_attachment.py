"""The KL as a gradient before a step: the same parameters as with the KL in the loss, whatever the trainer does."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vbdrop import ELBO, Rates, Units, Warmup, Weights, convert_, kl, param_groups
from vbdrop.layers.noisy import kl_of
from vbdrop.objective import attachment

MODES = {"weights": [Weights()], "units": [Units()], "both": [Weights(), Units()], "rates": [Rates("layer")]}


@pytest.fixture(params=MODES)
def model(request) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    convert_(model, *MODES[request.param])
    return model


def batches(n: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(8, 4, dtype=torch.float64), torch.arange(8) % 3) for _ in range(n)]


def nll_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def adam(model: nn.Module, **options: bool) -> torch.optim.Optimizer:
    return torch.optim.Adam(param_groups(model, lr=0.05), **options)


def with_the_loss(model: nn.Module, steps: list[tuple[Tensor, Tensor]]) -> nn.Module:
    """A copy of the model after steps on the loss with the KL."""
    model = copy.deepcopy(model)
    elbo, optimizer = ELBO(model, n_train=50, kl_weight=2.0), adam(model)
    torch.manual_seed(1)
    for batch in steps:
        optimizer.zero_grad()
        elbo(nll_of(model, batch)).backward()
        optimizer.step()
    return model


def assert_same(found: nn.Module, expected: nn.Module) -> None:
    for (name, a), b in zip(found.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=lambda text, n=name: f"{n}: {text}")


def test_the_steps_are_those_of_the_loss_with_the_kl(model):
    steps = batches(5)
    expected = with_the_loss(model, steps)
    optimizer = adam(model)
    ELBO(model, n_train=50, kl_weight=2.0).attach(optimizer)
    torch.manual_seed(1)
    for batch in steps:
        optimizer.zero_grad()
        nll_of(model, batch).backward()
        optimizer.step()
    assert_same(model, expected)


@pytest.mark.parametrize("by_name", [True, False])
def test_a_closure_sets_gradients_to_zero_first_and_gets_the_kl_all_the_same(model, by_name):
    steps = batches(5)
    expected = with_the_loss(model, steps)
    optimizer, losses = adam(model), []
    ELBO(model, n_train=50, kl_weight=2.0).attach(optimizer)
    torch.manual_seed(1)
    for batch in steps:

        def closure(batch=batch) -> Tensor:
            optimizer.zero_grad()
            loss = nll_of(model, batch)
            loss.backward()
            losses.append(loss)
            return loss

        result = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
        assert result is losses[-1]
    assert len(losses) == 5
    assert_same(model, expected)


def test_accumulated_batches_get_it_once():
    model = nn.Linear(4, 3).double()
    convert_(model, Weights())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ELBO(model, n_train=50).attach(optimizer)
    nlls = []
    for batch in batches(3):
        loss = nll_of(model, batch) / 3
        nlls.append(torch.autograd.grad(loss, list(model.parameters()), retain_graph=True))
        loss.backward()
    optimizer.step()
    own = torch.autograd.grad(kl(model) / 50, list(model.parameters()), allow_unused=True, materialize_grads=True)
    for p, *parts in zip(model.parameters(), *nlls, own, strict=True):
        torch.testing.assert_close(p.grad, sum(parts), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fused", [True, False])
def test_a_grad_scaler_scales_it_where_the_optimizer_unscales(fused):
    """A fused optimizer steps on scaled gradients; for any other one the scaler unscales them before the step."""
    model = nn.Linear(4, 3)
    convert_(model, Weights())
    steps = [(x.float(), y) for x, y in batches(4)]
    expected = with_the_loss(model, steps)
    optimizer, scaler = adam(model, fused=fused), torch.amp.GradScaler("cpu", init_scale=1024.0)
    ELBO(model, n_train=50, kl_weight=2.0).attach(optimizer)
    torch.manual_seed(1)
    for batch in steps:
        optimizer.zero_grad()
        scaler.scale(nll_of(model, batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_several_optimizers_add_each_for_its_own_parameters(model):
    (batch,) = batches(1)
    rates = [p for name, p in model.named_parameters() if "log_" in name]
    others = [p for p in model.parameters() if not any(p is rate for rate in rates)]
    optimizers = [torch.optim.SGD(rates, lr=0.1), torch.optim.SGD(others, lr=0.1)]
    expected = copy.deepcopy(model)
    single = torch.optim.SGD(expected.parameters(), lr=0.1)
    ELBO(expected, n_train=50).attach(single)
    elbo = ELBO(model, n_train=50)
    for optimizer in optimizers if not isinstance(model[0].noise, Rates) else optimizers[:1]:
        elbo.attach(optimizer)
    for each, steps in ((model, optimizers), (expected, [single])):
        torch.manual_seed(1)
        nll_of(each, batch).backward()
        for optimizer in steps:
            optimizer.step()
    # the second optimizer steps after the first: the gradient of the KL then is that of the new rates
    for (name, a), b in zip(model.named_parameters(), expected.parameters(), strict=True):
        if "log_" in name:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
        else:
            assert (a - b).abs().max() < 1e-3


def test_what_is_frozen_is_left_alone():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    convert_(model, Weights())
    model[0].weight.requires_grad_(False)
    model[2].log_sigma2.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ELBO(model, n_train=1).attach(optimizer)
    optimizer.step()
    assert [name for name, p in model.named_parameters() if p.grad is not None] == ["0.log_sigma2", "2.weight"]


def test_frozen_rates_add_nothing_to_means_that_their_kl_does_not_depend_on():
    model = nn.Sequential(nn.Linear(4, 3)).double()
    convert_(model, Rates())
    model[0].log_alpha.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ELBO(model, n_train=10).attach(optimizer)
    nll_of(model, batches(1)[0]).backward()
    before = model[0].weight.grad.clone()
    optimizer.step()
    assert torch.equal(model[0].weight.grad, before)


def test_a_parameter_without_a_gradient_gets_that_of_the_kl():
    model = nn.Linear(4, 3)
    convert_(model, Weights())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ELBO(model, n_train=7).attach(optimizer)
    optimizer.step()
    expected = torch.autograd.grad(kl(model) / 7, [model.weight, model.log_sigma2])
    torch.testing.assert_close((model.weight.grad, model.log_sigma2.grad), expected)
    assert model.bias.grad is None


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")  # torch's own compiler
def test_a_compiled_model_gets_it(model):
    steps = batches(3)
    torch.compiler.reset()
    for m in model.modules():
        m.fused = False
    expected = with_the_loss(model, steps)
    optimizer, compiled = adam(model), torch.compile(model, backend="aot_eager")
    ELBO(model, n_train=50, kl_weight=2.0).attach(optimizer)
    torch.manual_seed(1)
    for batch in steps:
        optimizer.zero_grad()
        nll_of(compiled, batch).backward()
        optimizer.step()
    assert_same(model, expected)


def test_the_warm_up_rules_it_and_terms_tell_what_there_is():
    model = nn.Linear(4, 3)
    convert_(model, Weights())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    elbo = ELBO(model, n_train=10, warmup=Warmup(hold=1, ramp=2))
    elbo.attach(optimizer)
    with pytest.raises(RuntimeError, match="`epoch` is not set"):
        optimizer.step()
    found = []
    for epoch in (0, 2, 3):
        elbo.epoch = epoch
        optimizer.zero_grad()
        optimizer.step()
        found.append(0.0 if model.weight.grad is None else model.weight.grad.abs().sum().item())
    whole = torch.autograd.grad(kl(model) / 10, model.weight)[0].abs().sum().item()
    assert found == pytest.approx([0, whole / 2, whole], rel=1e-5)
    terms = elbo.terms
    assert (terms.nll, terms.loss, terms.kl_weight) == (None, None, 1.0)
    assert terms.kl.item() == pytest.approx(kl(model).item(), rel=1e-6)
    assert elbo.calls == 3


def test_both_ways_at_once_are_an_error_and_evaluation_is_not():
    model = nn.Linear(4, 3).double()
    convert_(model, Weights())
    elbo = ELBO(model, n_train=10)
    handle = elbo.attach(adam(model))
    (batch,) = batches(1)
    with pytest.raises(RuntimeError, match=r"the KL would count twice: it is attached to an optimizer"):
        elbo(nll_of(model, batch))
    with torch.no_grad():
        assert elbo(nll_of(model, batch)).isfinite()
    handle.remove()
    assert elbo(nll_of(model, batch)).requires_grad


def test_removed_it_adds_nothing():
    model = nn.Linear(4, 3)
    convert_(model, Weights())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    elbo = ELBO(model, n_train=10)
    handle = elbo.attach(optimizer)
    handle.remove()
    handle.remove()
    optimizer.step()
    assert all(p.grad is None for p in model.parameters())
    elbo.attach(optimizer)
    optimizer.step()
    assert model.weight.grad is not None


def test_what_cannot_be_attached_to_is_named():
    model = nn.Linear(4, 3)
    convert_(model, Weights())
    elbo = ELBO(model, n_train=10)
    with pytest.raises(TypeError, match=r"`optimizer` must not be LBFGS: its line search compares losses"):
        elbo.attach(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(TypeError, match=r"`optimizer` must be a torch\.optim\.Optimizer; got list"):
        elbo.attach([])
    with pytest.raises(ValueError, match=r"`optimizer` has no trainable parameter of a converted layer"):
        elbo.attach(torch.optim.SGD([model.bias], lr=0.1))
    optimizer = adam(model)
    elbo.attach(optimizer)
    with pytest.raises(ValueError, match="`optimizer` already has this ELBO attached"):
        elbo.attach(optimizer)


def test_what_is_not_finite_is_found():
    model = nn.Linear(4, 3)
    convert_(model, Weights())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ELBO(model, n_train=10, check_every=2).attach(optimizer)
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
    optimizer.step()
    with pytest.raises(FloatingPointError, match=r"kl = nan\)\. Not finite: 'weight'"):
        optimizer.step()


def test_shards_get_the_gradient_of_their_own_part(tmp_path):
    """One process with one shard: what it adds is what a plain model gets."""
    distributed = pytest.importorskip("torch.distributed")
    from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        model = nn.Linear(4, 3)
        convert_(model, Weights())
        expected = torch.autograd.grad(kl(model) / 7, [model.weight, model.log_sigma2])
        total = kl(model)
        for name in ("weight", "log_sigma2"):
            sharded = distribute_tensor(getattr(model, name).detach(), mesh, [Shard(0)])
            setattr(model, name, nn.Parameter(sharded))
        torch.testing.assert_close(kl(model), total)
        optimizer = torch.optim.SGD([model.weight, model.log_sigma2], lr=0.0)
        ELBO(model, n_train=7, check_every=0).attach(optimizer)
        for times in (1, 2):
            optimizer.step()
            for p, gradient in zip((model.weight, model.log_sigma2), expected, strict=True):
                torch.testing.assert_close(p.grad.to_local(), times * gradient)
    finally:
        distributed.destroy_process_group()


def test_gradients_of_a_loss_with_the_kl_are_refused_until_they_are_zeroed(model):
    optimizer, elbo = torch.optim.SGD(param_groups(model, lr=0.1), lr=0.1), ELBO(model, n_train=10)
    elbo(model(torch.randn(3, 4).double()).square().mean()).backward()
    with pytest.raises(ValueError, match=r"already contain the KL; call optimizer\.zero_grad\(\) before attach"):
        elbo.attach(optimizer)
    optimizer.zero_grad()
    elbo.attach(optimizer).remove()


@pytest.mark.parametrize(("at_once", "calls"), [(1, 4), (14, 2), (10_000, 1)])
def test_only_so_many_gradients_exist_at_once_and_all_are_added(at_once, calls, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    convert_(model, Weights(), Units())  # 12 weights, 4 gates, 6 weights, 3 gates
    optimizer, sizes = torch.optim.SGD(param_groups(model), lr=0.1), []

    def counted(entries, scale):
        sizes.append(sum(entry.mean.numel() for entry in entries))
        return kl_of(entries, scale)

    monkeypatch.setattr(attachment, "AT_ONCE", at_once)
    monkeypatch.setattr(attachment, "kl_of", counted)
    attachment.add_kl_gradients_(model, optimizer, 0.5)
    wanted = torch.autograd.grad(0.5 * kl(model), list(model.parameters()), allow_unused=True)
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        if gradient is not None:
            torch.testing.assert_close(parameter.grad, gradient)
    assert len(sizes) == calls
    assert sum(sizes) == 25

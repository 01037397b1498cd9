"""The loop: what a method sees, what is written down, and a run that goes on as if nothing had happened."""

import io
import json
import math
from dataclasses import dataclass, replace

import pytest
import torch
from tests.trained import above, below
from torch import nn
from torch.nn.functional import cross_entropy

from vbdrop.train import Budget, DivergedError, Method, RecordError, checkpoint, evaluate, fit, read_metrics
from vbdrop.train.loop import METRICS_FILE

BUDGET = Budget(epochs=6, batch=50, lr=0.01, seed=3)


class StoppedError(Exception):
    pass


def interrupt_after(steps):
    def report(done, in_all, epoch):
        if done == steps:
            raise StoppedError

    return report


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def without_seconds(lines):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.mark.parametrize("method_name", ["noisy", "sparse"])
def test_a_run_that_is_stopped_anywhere_ends_as_if_it_had_not_been(method_name, request, network, examples, tmp_path):
    method = request.getfixturevalue(method_name)
    whole = fit(method, network(), examples, examples, BUDGET, folder=tmp_path)
    lines = read_metrics(tmp_path / METRICS_FILE)

    resumed = tmp_path / "resumed"
    resumed.mkdir()
    for steps in (2, 5, 17, 24):  # within the first epoch, at the end of one (5 steps each), within a later one
        with pytest.raises(StoppedError):
            fit(
                method, network(), examples, examples, BUDGET, folder=resumed,
                checkpoint_seconds=0, report=interrupt_after(steps),
            )  # fmt: skip
    again = fit(method, network(), examples, examples, BUDGET, folder=resumed, checkpoint_seconds=0)

    assert same(again.model, whole.model)
    assert same(again.network, whole.network)
    assert again.evaluation == whole.evaluation
    assert without_seconds(read_metrics(resumed / METRICS_FILE)) == without_seconds(lines)
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5, 6]


@pytest.mark.trained
def test_a_run_that_shrinks_is_stopped_anywhere_and_ends_as_if_it_had_not_been(gated, network, examples, tmp_path):
    budget = replace(BUDGET, epochs=10, lr=0.03, shrink_every=2)
    whole = fit(gated, network(), examples, examples, budget, folder=tmp_path)
    lines = read_metrics(tmp_path / METRICS_FILE)
    resumed = tmp_path / "resumed"
    resumed.mkdir()
    sizes = []
    for steps in (17, 27, 38, 46):
        with pytest.raises(StoppedError):
            fit(
                gated, network(), examples, examples, budget, folder=resumed,
                checkpoint_seconds=0, report=interrupt_after(steps),
            )  # fmt: skip
        state = torch.load(io.BytesIO((resumed / checkpoint.FILE).read_bytes()[32:]), weights_only=True)
        sizes.append(state["model"]["3.weight"].shape[1])
        moments = state["optimizer"]["state"].values()
        assert {m["exp_avg"].shape for m in moments} == {p.shape for n, p in state["model"].items() if is_trained(n)}
    assert sizes[0] == 16
    assert sizes == sorted(sizes, reverse=True)
    above(0, sizes[0] - sizes[-1], mean=10.6, sd=1.1)
    again = fit(gated, network(), examples, examples, budget, folder=resumed, checkpoint_seconds=0)
    assert same(again.model, whole.model)
    assert same(again.network, whole.network)
    assert again.evaluation == whole.evaluation
    assert without_seconds(read_metrics(resumed / METRICS_FILE)) == without_seconds(lines)


def is_trained(name):
    return not name.endswith(("running_mean", "running_var", "num_batches_tracked"))


@pytest.mark.trained
def test_a_run_that_shrinks_is_counted_by_its_original_network(gated, network, examples):
    budget, seen = replace(BUDGET, epochs=10, lr=0.03, shrink_every=1), []
    report = lambda done, steps, epoch: seen.append(epoch)  # noqa: E731
    trained = fit(gated, network(), examples, examples, budget, report=report)
    figures = [epoch.sparsity for epoch in seen if epoch is not None]
    assert {each.weights for each in figures} == {8 * 16 + 16 * 2}
    below(1, figures[-1].kept / figures[0].kept, mean=0.134, sd=0.028)
    assert {n: p.shape for n, p in trained.network.named_parameters()} == dict(shapes(network()))
    assert trained.model[0].gate.weight.shape == (8,)
    assert evaluate(trained.network, examples) == trained.evaluation
    assert evaluate(trained.model, examples).wrong == trained.evaluation.wrong


def shapes(model):
    return ((name, parameter.shape) for name, parameter in model.named_parameters())


def test_a_method_whose_units_never_die_cannot_shrink(noisy, network, examples):
    with pytest.raises(ValueError, match="`shrink_every` must be None for Noisy"):
        fit(noisy, network(), examples, examples, replace(BUDGET, shrink_every=2))


def test_the_noise_and_the_seed_matter_and_nothing_else_does(noisy, network, examples):
    torch.manual_seed(11)
    first = fit(noisy, network(), examples, examples, BUDGET)
    torch.manual_seed(12)
    state = torch.get_rng_state()
    model = network()
    torch.set_rng_state(state)
    second = fit(noisy, model, examples, examples, replace(BUDGET, evaluate_every=4))
    assert same(first.model, second.model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not same(first.model, fit(noisy, network(), examples, examples, replace(BUDGET, seed=4)).model)


@dataclass(frozen=True)
class Spy(Method):
    """Writes down what the loop asks of a method."""

    seen: list
    name = "spy"

    def groups(self, model, lr):
        return [{"params": [model.weight], "lr": 10 * lr}, {"params": [model.bias], "lr": lr}]

    def loss(self, model, batch, step):
        assert model.training
        self.seen.append(("loss", step, batch))
        return cross_entropy(model(batch.inputs), batch.targets)

    def after_step(self, model, step):
        self.seen.append(("after_step", step, None))

    def finish(self, model):
        self.seen.append(("finish", None, None))
        with torch.no_grad():
            model.weight[0] = 0
        return model


def test_what_a_method_is_asked(examples):
    seen = []
    model = nn.Linear(8, 2)
    before = model.weight.detach().clone(), model.bias.detach().clone()
    trained = fit(Spy(seen), model, examples, examples, Budget(epochs=2, batch=100, lr=1e-3, evaluate_every=2))
    assert [kind for kind, _, _ in seen[:6]] == ["loss", "after_step"] * 3
    steps = [step for kind, step, _ in seen if kind == "loss"]
    assert [step.index for step in steps] == [0, 1, 2, 3, 4, 5]
    assert {(step.steps, step.epochs, step.n_train) for step in steps} == {(6, 2, 230)}
    assert [round(step.epoch, 6) for step in steps] == [0, 0.333333, 0.666667, 1, 1.333333, 1.666667]
    assert steps[-1].progress == 5 / 6
    first, second = ([batch for kind, _, batch in seen if kind == "loss"][i : i + 3] for i in (0, 3))
    assert [len(batch.targets) for batch in first] == [100, 100, 30]
    inputs = torch.cat([batch.inputs for batch in first])
    assert torch.equal(inputs.sort(0).values, examples.inputs.sort(0).values)
    assert not torch.equal(inputs, torch.cat([batch.inputs for batch in second]))
    # Adam moves by about its learning rate a step: full for three steps, then 1, 2/3 and 1/3 of it.
    moved = [(after - old).abs().max().item() for after, old in zip((model.weight, model.bias), before, strict=True)]
    assert moved[0] == pytest.approx(5e-2, rel=0.05)
    assert moved[1] == pytest.approx(5e-3, rel=0.1)
    # The finished network is another one: the model that was trained has its weights.
    assert trained.network is not trained.model
    assert trained.last.sparsity.nonzero == {"": 8}
    assert torch.count_nonzero(trained.model.weight) == 16


def test_what_is_written_down(sparse, network, examples, tmp_path):
    sizes = []
    report = lambda done, steps, epoch: sizes.append((done, steps, epoch and epoch.epoch))  # noqa: E731
    fit(sparse, network(), examples, examples, replace(BUDGET, evaluate_every=4), folder=tmp_path, report=report)
    lines = read_metrics(tmp_path / METRICS_FILE)
    assert ["error" in line for line in lines] == [False, False, False, True, False, True]
    assert all(line["kl"] > 0 and line["seconds"] >= 0 and line["loss"] > 0 for line in lines)
    assert lines[-1]["weights"] == 8 * 16 + 16 * 2
    assert set(lines[-1]["nonzero"]) == {"0", "3"}
    assert lines[0]["lr"] == 1
    assert 0 < lines[-1]["lr"] < 0.1
    assert sizes[:5] == [(1, 30, None), (2, 30, None), (3, 30, None), (4, 30, None), (5, 30, 1)]
    assert sizes[-1] == (30, 30, 6)


@dataclass(frozen=True)
class Diverging(Method):
    """Has an infinite loss, or says so itself, in the second epoch."""

    raises: bool

    def loss(self, model, batch, step):
        loss = cross_entropy(model(batch.inputs), batch.targets)
        if step.epoch < 1:
            return loss
        if self.raises:
            raise FloatingPointError("nll is infinite")
        return loss * math.inf


@pytest.mark.parametrize("raises", [True, False])
def test_a_loss_that_is_not_finite_ends_the_run(raises, network, examples):
    with pytest.raises(DivergedError, match="not finite in epoch 2") as caught:
        fit(Diverging(raises), network(), examples, examples, BUDGET)
    assert caught.value.epoch == 2


def test_a_checkpoint_of_another_run_is_refused(noisy, network, examples, tmp_path):
    with pytest.raises(StoppedError):
        fit(
            noisy, network(), examples, examples, BUDGET, folder=tmp_path,
            checkpoint_seconds=0, report=interrupt_after(12),
        )  # fmt: skip
    with pytest.raises(RecordError, match="belongs to another run"):
        fit(replace(noisy, rate=0.3), network(), examples, examples, BUDGET, folder=tmp_path)
    with pytest.raises(RecordError, match="belongs to another run"):
        fit(noisy, network(), examples, examples, replace(BUDGET, lr=1e-3), folder=tmp_path)
    assert len(read_metrics(tmp_path / METRICS_FILE)) == 2


def test_a_run_that_was_begun_with_kernels_and_goes_on_without_says_so(noisy, network, examples, tmp_path, monkeypatch):
    monkeypatch.setattr("vbdrop.train.loop.in_use", lambda: "0123456789ab")
    with pytest.raises(StoppedError):
        fit(
            noisy, network(), examples, examples, BUDGET, folder=tmp_path,
            checkpoint_seconds=0, report=interrupt_after(12),
        )  # fmt: skip
    monkeypatch.setattr("vbdrop.train.loop.in_use", lambda: "none")
    with pytest.warns(UserWarning, match=r"kernels 0123456789ab up to epoch 2 and resumes without compiled kernels"):
        fit(noisy, network(), examples, examples, BUDGET, folder=tmp_path)


def test_metrics_that_lost_lines_are_an_error(noisy, network, examples, tmp_path):
    with pytest.raises(StoppedError):
        fit(
            noisy, network(), examples, examples, BUDGET, folder=tmp_path,
            checkpoint_seconds=0, report=interrupt_after(12),
        )  # fmt: skip
    (tmp_path / METRICS_FILE).write_text(json.dumps({"epoch": 1}) + "\n")
    with pytest.raises(RecordError, match="must have at least the"):
        fit(noisy, network(), examples, examples, BUDGET, folder=tmp_path)


def test_no_examples(noisy, network, examples):
    none = examples._replace(inputs=examples.inputs[:0], targets=examples.targets[:0])
    with pytest.raises(ValueError, match="`train` must hold at least one example"):
        fit(noisy, network(), none, examples, BUDGET)


def test_the_first_noise_is_not_what_the_initial_weights_were_drawn_from(network, examples):
    torch.manual_seed(BUDGET.seed)
    of_the_weights = torch.rand(4)
    drawn = []

    class Drawing(Method):
        def loss(self, model, batch, step):
            drawn.append(torch.rand(4))
            return nn.functional.cross_entropy(model(batch.inputs), batch.targets)

    fit(Drawing(), network(), examples, examples, replace(BUDGET, epochs=1))
    assert not torch.equal(drawn[0], of_the_weights)


@pytest.mark.parametrize("evaluate_every", [1, 5])
@pytest.mark.parametrize("method_name", ["noisy", "sparse"])
def test_a_run_that_diverges_in_the_last_step_of_an_epoch_has_diverged(
    method_name, evaluate_every, request, network, examples, tmp_path
):
    method = request.getfixturevalue(method_name)
    budget = Budget(epochs=2, batch=len(examples.targets), lr=1e25, evaluate_every=evaluate_every)
    with pytest.raises(DivergedError, match=r"not finite in epoch [12]"):
        fit(method, network(), examples, examples, budget, folder=tmp_path)


def test_a_layer_in_which_everything_is_dead_is_named(sparse, network, examples):
    with pytest.warns(UserWarning, match=r"^everything in .* is dead.* Give the method's penalty less weight"):
        fit(replace(sparse, weight=1e4), network(), examples, examples, replace(BUDGET, epochs=10, lr=0.05))


def test_weights_that_are_read_without_their_noise_are_refused_before_the_first_step(sparse, examples):
    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(examples.inputs[0].numel(), 10)

        def forward(self, x):
            return nn.functional.linear(x.flatten(1), self.fc.weight, self.fc.bias)

    with pytest.raises(RuntimeError, match="uses the weights of 'fc' without their noise"):
        fit(sparse, Direct(), examples, examples, BUDGET)

"""A run that is killed goes on to the same bits."""

import os
import signal
import subprocess
import sys
from random import Random

import pytest
import torch
from tests.stress import only_in_stress
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vbdrop
from vbdrop.targets.batches import Batches
from vbdrop.targets.losses import default_loss
from vbdrop.targets.shrink_run import ShrinkRun

PROGRAM = """
import hashlib, os, signal, sys, time
import torch
from torch import nn
import vbdrop

RUNS = {
    "weights": {"target": vbdrop.Target(weights=4)},
    "shrink_every": {"target": vbdrop.Target(macs=4, train=0), "shrink_every": 3},
    "within": {"target": vbdrop.Target(within=4.0, train=0)},
}
folder, name, kills = sys.argv[1], sys.argv[2], eval(sys.argv[3])

def end(checkpoint, say):
    torch.manual_seed(0)
    x = torch.randn(200, 6)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 2))
    result = vbdrop.shrink(model, (x, y), valid=(x, y), epochs=8, lr=0.01, batch_size=25, checkpoint=checkpoint,
                           progress=lambda point, epochs: say(point.epoch), **RUNS[name])
    kept = [hashlib.sha256(kept.content).hexdigest() for kept in result.kept]
    return {"model": result.model.state_dict(), "figures": result.to_json(), "kept": kept}

for epoch, delay in kills:  # each in a process of its own; this one has not computed anything that a fork could lock
    seen, told = os.pipe()
    child = os.fork()
    if child == 0:
        end(f"{folder}/killed.pt", lambda epoch: (os.write(told, bytes([epoch])), time.sleep(0.1)))
        os._exit(0)
    os.close(told)
    while (last := os.read(seen, 1)) and last[0] < epoch:
        pass
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
epochs = []
again = end(f"{folder}/killed.pt", epochs.append)
once_more = end(f"{folder}/killed.pt", epochs.append)
torch.save([end(f"{folder}/whole.pt", lambda epoch: None), again, once_more, epochs], f"{folder}/ends.pt")
"""


@only_in_stress
@pytest.mark.parametrize("run", ["within", "shrink_every", "weights"])
def test_killed_at_random_points_it_ends_with_the_same_bits(tmp_path, run):
    random = Random(run)
    kills = sorted((random.randint(1, 5), random.uniform(0, 0.2)) for _ in range(5))  # two epochs at most
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), run, repr(kills)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True,
    )  # fmt: skip
    codes = list(map(int, done.stdout.split()))
    assert codes == [-signal.SIGKILL] * len(kills)
    whole, again, once_more, epochs = torch.load(tmp_path / "ends.pt", weights_only=True)
    assert kills[-1][0] < epochs[0]  # it went on from where it was, and was not made again
    assert epochs[-1] == 8
    assert len(epochs) == len(set(epochs))
    assert whole["kept"]
    for end in (again, once_more):
        assert end["figures"] == whole["figures"]
        assert end["kept"] == whole["kept"]
        assert end["model"].keys() == whole["model"].keys()
        for name, tensor in whole["model"].items():
            assert torch.equal(tensor, end["model"][name]), name


@pytest.fixture
def data():
    torch.manual_seed(0)
    x = torch.randn(100, 6)
    return x, (x[:, 0] > 0).long()


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))


def test_a_finished_run_is_not_made_again(tmp_path, data):
    seen = []
    arguments = {"target": vbdrop.Target(weights=3), "epochs": 4, "checkpoint": tmp_path / "run.pt"}
    first = vbdrop.shrink(make(), data, progress=lambda point, epochs: seen.append(point.epoch), **arguments)
    again = vbdrop.shrink(make(), data, progress=lambda point, epochs: seen.append(point.epoch), **arguments)
    assert seen == [1, 2, 3, 4]
    assert first.to_json() == again.to_json()
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))


def test_a_network_that_cannot_be_made_smaller_in_the_end_is_told(data):
    class Fickle(nn.Sequential):
        is_traceable = True

        def forward(self, x):
            if not Fickle.is_traceable and bool(x.sum() > 1e30):
                raise OverflowError
            return super().forward(x)

    def change(point, epochs):
        Fickle.is_traceable = point.epoch < epochs

    model = Fickle(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
    with pytest.warns(UserWarning, match="ended larger than its target, 160 macs .* cannot trace the model"):
        result = vbdrop.shrink(model, data, target=vbdrop.Target(macs=3), epochs=4, progress=change)
    assert result.size == 160 > result.limit


def test_another_run_does_not_go_on_from_it(tmp_path, data):
    arguments = {"target": vbdrop.Target(weights=3), "checkpoint": tmp_path / "run.pt"}
    vbdrop.shrink(make(), data, epochs=3, **arguments)
    with pytest.raises(ValueError, match="of another run"):
        vbdrop.shrink(make(), data, epochs=4, **arguments)


@pytest.mark.parametrize("other", ["modes", "model"])
def test_a_run_with_other_modes_or_another_model_does_not_go_on_from_it(tmp_path, data, other):
    arguments = {"target": vbdrop.Target(weights=3, train=0), "epochs": 2, "checkpoint": tmp_path / "run.pt"}
    model, modes = make(), vbdrop.Weights(filter_fn=lambda module, name: True)
    vbdrop.shrink(model, data, modes=modes, **arguments)
    vbdrop.shrink(make(), data, modes=vbdrop.Weights(filter_fn=lambda module, name: True), **arguments)
    if other == "modes":
        modes = vbdrop.Weights(log_sigma2=-8.0)
    else:
        model[0].weight.data.add_(1e-3)
    with pytest.raises(ValueError, match="of another run"):
        vbdrop.shrink(model, data, modes=modes, **arguments)


def test_a_run_that_trains_first_may_begin_with_other_weights(tmp_path, data):
    arguments = {"target": vbdrop.Target(weights=3, train=0.5), "epochs": 2, "checkpoint": tmp_path / "run.pt"}
    first = vbdrop.shrink(make(), data, **arguments)
    model = make()
    model[0].weight.data.add_(1.0)
    assert vbdrop.shrink(model, data, **arguments).to_json() == first.to_json()


def test_a_checkpoint_of_an_older_version_is_resumed(tmp_path, data, monkeypatch):
    arguments = {"target": vbdrop.Target(weights=3, train=0), "epochs": 2, "checkpoint": tmp_path / "run.pt"}
    with monkeypatch.context() as older:
        older.setattr(ShrinkRun, "_identity", ShrinkRun._former_identity)
        first = vbdrop.shrink(make(), data, **arguments)
    assert vbdrop.shrink(make(), data, **arguments).to_json() == first.to_json()


class KilledError(Exception):
    """Stands for the end of a process."""


def killed_and_resumed(path, epoch, run):
    """The result of a run that was killed after an epoch, and of one that was not."""

    def kill(point, epochs):
        if point.epoch == epoch:
            raise KilledError

    with pytest.raises(KilledError):
        run(checkpoint=path, progress=kill)
    return run(checkpoint=path), run()


def test_a_loader_with_a_generator_of_its_own_resumes_with_the_same_bits(tmp_path, data):
    def run(**options):
        generator = torch.Generator().manual_seed(5)
        loader = DataLoader(TensorDataset(*data), batch_size=20, shuffle=True, generator=generator)
        return vbdrop.shrink(make(), loader, target=vbdrop.Target(macs=3), epochs=3, **options)

    again, whole = killed_and_resumed(tmp_path / "run.pt", 1, run)
    assert again.to_json() == whole.to_json()


def test_a_run_within_a_tolerance_takes_the_same_path_after_a_kill(tmp_path):
    """The least size of the trained model is 2, and that of the untrained one, which a new process sees first, is 0."""
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    y = (x[:, 0] * x[:, 1] > 0).long()

    def run(**options):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        target = vbdrop.Target(within=5.0, unit="weights", train=0.4)
        return vbdrop.shrink(model, (x, y), valid=(x, y), target=target, epochs=10, lr=0.1, **options)

    again, whole = killed_and_resumed(tmp_path / "run.pt", 5, run)
    assert whole.curve[6].path == pytest.approx(2.04)
    assert again.to_json() == whole.to_json()


def test_the_seed_decides(data):
    model = make()

    def weights(seed):
        result = vbdrop.shrink(model, data, target=vbdrop.Target(weights=3), epochs=3, seed=seed)
        return torch.cat([p.detach().flatten() for p in result.model.parameters()])

    torch.manual_seed(5)
    state = torch.get_rng_state()
    one = weights(0)
    assert torch.equal(torch.get_rng_state(), state)  # torch's own random state is left as it was
    torch.manual_seed(6)
    assert torch.equal(one, weights(0))
    other = weights(1)
    assert one.shape != other.shape or not torch.equal(one, other)


@pytest.mark.parametrize(
    ("train", "refine", "stages"), [(0, 0, "pppp"), (0.5, 0, "ttpp"), (0, 0.5, "pprr"), (0.9, 0.1, "tttp")]
)
def test_each_stage_can_be_left_out(data, train, refine, stages):
    result = vbdrop.shrink(make(), data, target=vbdrop.Target(weights=3, train=train, refine=refine), epochs=4)
    found = "".join(point.stage[0] for point in result.curve)
    assert found in (stages, stages[:-1] + "r")  # without a last stage, the cut is before the last step
    assert result.size <= result.limit


def test_what_is_above_the_limit_after_the_refining_is_cut_again(data):
    """As a channel that was a constant zero at the cut may be another constant later, and take weights to carry."""
    run = ShrinkRun(
        make(), Batches(data, "train", make(), batch_size=25, shuffle=True), None, vbdrop.Target(weights=3), 4,
        loss=default_loss, lr=1e-2, modes=(vbdrop.Weights(),), optimizer=torch.optim.Adam, seed=0, checkpoint=None,
    )  # fmt: skip

    def lower(point, epochs):
        if point.epoch == epochs:
            run._pursuit.limit = 40.0

    result = run.finish(lower)
    assert 33 <= result.size <= 40
    assert result.limit == 40.0


def test_a_loss_that_is_not_finite_stops_the_run(data):
    with pytest.raises(FloatingPointError, match="not finite in epoch 1"):
        vbdrop.shrink(
            make(), data, target=vbdrop.Target(weights=3), epochs=2,
            loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets) * float("nan"),
        )  # fmt: skip


def test_sizes_that_are_tried_are_judged_with_new_statistics_as_those_of_the_walk(data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 2))
    batches = [Batches(data, what, model, batch_size=50) for what in ("train", "valid")]
    run = ShrinkRun(
        model, *batches, vbdrop.Target(within=1.0), 10,
        loss=default_loss, lr=1e-2, modes=(vbdrop.Units(),), optimizer=torch.optim.Adam, seed=0, checkpoint=None,
    )  # fmt: skip
    expected = run._tolerance._error(model.eval())
    model[1].running_mean.fill_(100.0)
    assert run._error(model) != expected
    assert run._tolerance._error(model) == expected


class Auxiliary(nn.Module):
    """Its second head is used in training alone."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 20), nn.ReLU()), nn.Linear(20, 2)
        self.extra = nn.Sequential(nn.Linear(20, 2), nn.BatchNorm1d(2))

    def forward(self, x):
        hidden = self.body(x)
        return self.head(hidden) + self.extra(hidden) if self.training else self.head(hidden)


def test_a_norm_of_an_auxiliary_head_keeps_its_statistics(data):
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match=r"no batch reached the BatchNorm layers 'extra\.1'"):
        result = vbdrop.shrink(Auxiliary(), data, target=vbdrop.Target(weights=3, train=0.0), epochs=2, lr=0.01)
    assert (result.model.extra[1].running_var != 1).all()


def test_an_evaluation_that_fails_leaves_every_module_in_its_mode(data):
    def fails(model):
        assert not any(module.training for module in model.modules())
        raise RuntimeError("no data")

    model = make()
    model[-1].eval()
    modes = [module.training for module in model.modules()]
    target = vbdrop.Target(within=1.0, train=0.0, evaluate=fails)
    run = ShrinkRun(
        model, Batches(data, "train", model), None, target, 4, loss=default_loss, lr=0.01, modes=(vbdrop.Weights(),),
        optimizer=torch.optim.Adam, seed=0, checkpoint=None,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="no data"):
        run.finish(None)
    assert [module.training for module in run.model.modules()] == modes

import signal

import pytest
import torch
import torch.nn.functional as F
from tests.integrations.ranks import ended_ranks, run_ranks
from tests.stress import count, only_in_stress
from torch import nn

import vbdrop
from vbdrop.integrations.distributed import shrink_ranks_
from vbdrop.targets.run_file import digest

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no process groups")

SETTING = """
def converted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    vbdrop.convert_(model, vbdrop.Units(filter_fn=lambda module, name: name != "0"))
    with torch.no_grad():
        for index in (2, 4):  # some gates die in 200 steps, one after the other
            gate = model[index].gate
            gate.log_sigma2.copy_(torch.linspace(-20, -1, len(gate.log_sigma2)))
    return model.eval()  # without noise, so that a single process can be compared

def data(steps, batch):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(steps, batch, 6, generator=generator, dtype=torch.float64)
    return x, (x[:, :, 0] > 0).long() + (x[:, :, 1] > 0).long()

def optimizer_of(model):
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=3e-3, rate_lr=0.05))
    vbdrop.ELBO(model, n_train=300, kl_weight=0.1, check_every=0).attach(optimizer)
    return optimizer

def step(forward, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(forward(x), y).backward()
    optimizer.step()

def facts(model, optimizer):
    moments = {f"{name}/moment": optimizer.state[p]["exp_avg"] for name, p in model.named_parameters()}
    return {**model.state_dict(), **moments}
"""
exec(SETTING, setting := {"nn": nn, "torch": torch, "vbdrop": vbdrop, "F": F})

GRADIENTS = """
model = converted()
wrapped = DDP(model)
elbo = vbdrop.ELBO(model, n_train=300)
x, y = (part[0].chunk(world)[rank] for part in data(1, 12))
elbo(F.cross_entropy(wrapped(x), y)).backward()
torch.save({name: p.grad for name, p in model.named_parameters()}, f"{folder}/{rank}.pt")
"""


@pytest.mark.stress
@pytest.mark.parametrize("world", [3, 2][: count(1, 2)])
def test_gradients_are_those_of_one_process_with_the_joint_batch(tmp_path, world):
    run_ranks(SETTING + GRADIENTS, world, tmp_path)
    model = setting["converted"]()
    x, y = (part[0] for part in setting["data"](1, 12))
    vbdrop.ELBO(model, n_train=300)(F.cross_entropy(model(x), y)).backward()
    for rank in range(world):
        found = torch.load(tmp_path / f"{rank}.pt")
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name], parameter.grad, rtol=0, atol=1e-6)


SHRINKING = """
from vbdrop.integrations.distributed import shrink_ranks_
from vbdrop.targets.run_file import digest

model = converted()
options = {"find_unused_parameters": True}  # without noise, the loss alone does not depend on its variances
wrapped, optimizer = DDP(model, **options), optimizer_of(model)
x, y = (part.chunk(world, 1)[rank] for part in data(steps, 12))
for index in range(steps):
    step(wrapped, optimizer, x[index], y[index])
    if index % 20 == 19:
        wrapped = shrink_ranks_(wrapped, torch.zeros(2, 6, dtype=torch.float64), optimizer, **options)
if rank == 0:
    torch.save(facts(model, optimizer), f"{folder}/end.pt")
print(digest(model), [tuple(p.shape) for p in model.parameters()])
"""


@pytest.mark.stress
@pytest.mark.parametrize(("world", "steps"), [(2, count(60, 200)), (3, 200)][: count(1, 2)])
def test_ranks_that_shrink_stay_equal_and_end_as_one_process(tmp_path, world, steps):
    said = run_ranks(SETTING + f"steps = {steps}\n" + SHRINKING, world, tmp_path)
    assert len(set(said)) == 1
    model = setting["converted"]()
    optimizer = setting["optimizer_of"](model)
    x, y = setting["data"](steps, 12)
    sizes = []
    for index in range(steps):
        setting["step"](model, optimizer, x[index], y[index])
        if index % 20 == 19:
            inputs = torch.zeros(2, 6, dtype=torch.float64)
            vbdrop.apply_plan_(vbdrop.compress(model, inputs, rewrite=False).plan, model, optimizer)
            sizes.append(model[0].out_features + model[2].out_features)
    assert len(set(sizes)) > 1, "nothing was removed on the way"
    assert sizes[-1] < 28
    found, expected = torch.load(tmp_path / "end.pt"), setting["facts"](model, optimizer)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)


GOING_ON = """
import os, signal, time
from pathlib import Path
from vbdrop.compression import Plan
from vbdrop.integrations.distributed import shrink_ranks_
from vbdrop.targets.run_file import digest

STEPS, file = 100, Path(folder) / "checkpoint.pt"
model = converted().train()  # with noise, of which each rank draws its own
with torch.no_grad():
    model[2].gate.log_sigma2[:4] = 5.0  # dead, so that the first checkpoint is that of a smaller model
optimizer, plans, start = optimizer_of(model), [], 0
torch.manual_seed(100 + rank)
if resume:
    state = torch.load(file, weights_only=True)
    for plan in state["plans"]:
        plans.append(Plan.from_json(plan))
        vbdrop.apply_plan_(plans[-1], model, optimizer)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["noise"][rank])
    start = state["step"]
wrapped = DDP(model)
x, y = (part.chunk(world, 1)[rank] for part in data(STEPS, 12))
for index in range(start, STEPS):
    if rank == 1 and index == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    try:
        step(wrapped, optimizer, x[index], y[index])
    except RuntimeError:
        print(time.monotonic() - started)
        raise
    if index % 20 == 19:
        wrapped = shrink_ranks_(wrapped, torch.zeros(2, 6, dtype=torch.float64), optimizer, plans)
        noise = [None] * world
        dist.all_gather_object(noise, torch.get_rng_state())
        if rank == 0 and dies_at is not None:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "noise": noise}
            torch.save({**state, "plans": [plan.to_json() for plan in plans], "step": index + 1}, file)
print(digest(model), len(plans))
"""


@only_in_stress
def test_ranks_stop_where_one_is_killed_and_go_on_from_the_checkpoint_as_if_nothing_had_happened(tmp_path):
    def program(dies_at=None, resume=False):
        return SETTING + f"dies_at, resume = {dies_at}, {resume}\n" + GOING_ON

    whole = run_ranks(program(), 3, tmp_path)
    assert len(set(whole)) == 1
    first, killed, last = ended_ranks(program(dies_at=70), 3, tmp_path)
    assert killed.code == -signal.SIGKILL
    for rank in (first, last):
        assert rank.code == 1
        assert float(rank.out) < 120, "the ranks waited for their timeout, 240 seconds"
        assert "RuntimeError" in rank.error
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert state["step"] == 60
    assert state["plans"], "nothing was removed before the checkpoint"
    assert run_ranks(program(resume=True), 3, tmp_path) == whole


REFUSED = """
from vbdrop.integrations.distributed import shrink_ranks_

model = converted()
wrapped, optimizer = DDP(model), optimizer_of(model)
with torch.no_grad():
    model[2].gate.log_sigma2[:4] = 9.0
x = torch.zeros(2, 6, dtype=torch.float64)
plan = vbdrop.compress(wrapped, x, rewrite=False).plan
assert plan.keep
print(list(vbdrop.rates(wrapped)))
print(tuple(vbdrop.predict(wrapped, x, samples=2).mean.shape))
try:
    vbdrop.apply_plan_(plan, wrapped, optimizer)
except ValueError as error:
    print(error)
before = model[0].out_features
vbdrop.apply_plan_(plan, model, optimizer)
print(before, model[0].out_features)
try:
    wrapped(x)
except RuntimeError as error:
    print(error)
wrapped = DDP(model)
F.cross_entropy(wrapped(x), torch.zeros(2, dtype=torch.long)).backward()
with torch.no_grad():
    model[0].bias.add_(rank)
try:
    shrink_ranks_(wrapped, x, optimizer)
except RuntimeError as error:
    print(error)
"""


def test_a_wrapped_model_is_accepted_where_that_is_right_and_refused_where_it_is_not(tmp_path):
    for said in run_ranks(SETTING + REFUSED, 2, tmp_path):
        names, shape, wrapped, sizes, stale, differing = said.splitlines()
        assert names == "['2.gate', '4.gate']"
        assert shape == "(2, 3)"
        assert wrapped.startswith("`target` must be the model itself; got it inside DistributedDataParallel")
        assert sizes == "16 12"
        assert stale.startswith("this DistributedDataParallel was made before its model became smaller")
        assert differing.startswith("the model must be the same on all ranks; on 1 it differs")


def test_only_a_wrapped_model_has_ranks():
    with pytest.raises(TypeError, match="`wrapped` must be a DistributedDataParallel; got Linear"):
        shrink_ranks_(nn.Linear(1, 1), torch.zeros(1, 1))


def test_a_digest_knows_names_shapes_and_bits():
    model = nn.Linear(2, 2)
    same = nn.Linear(2, 2)
    same.load_state_dict(model.state_dict())
    assert digest(model) == digest(same)
    same.weight.data[0, 0] = torch.nextafter(same.weight.data[0, 0], torch.tensor(9.0))
    assert digest(model) != digest(same)

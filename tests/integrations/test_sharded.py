import pytest
import torch
from tests.integrations.ranks import run_ranks
from tests.stress import only_in_stress

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no process groups")

SETTING = """
import warnings
warnings.filterwarnings("error", message=".*have not moved")  # a rank without a share of the rates must not say so
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from vbdrop.integrations.sharded import compress_sharded, gather, reduced_kl

MODES = {
    "Weights": vbdrop.Weights(), "Units": vbdrop.Units(), "Rates per weight": vbdrop.Rates(per="weight"),
    "Rates per unit": vbdrop.Rates(per="unit"), "Rates per layer": vbdrop.Rates(per="layer"),
}

def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))

def network(mode):
    model = plain()
    vbdrop.convert_(model, mode)
    return model.eval()  # without noise, of which each rank would draw its own

def sharded(mode):
    model = network(mode)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=torch.distributed.init_device_mesh("cpu", (world,)))
    return model, torch.optim.Adam(vbdrop.param_groups(model, lr=1e-2))

def far(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one.parameters(), other.parameters(), strict=True))

generator = torch.Generator().manual_seed(1)
x = torch.randn(20, 12, 6, generator=generator)
y = (x[:, :, 0] > 0).long() + (x[:, :, 1] > 0).long()
own_x, own_y = (part.chunk(world, 1)[rank] for part in (x, y))

def train(forward, model, optimizer, steps):
    elbo = vbdrop.ELBO(model, n_train=100, check_every=4)
    for index in steps:
        optimizer.zero_grad()
        elbo(F.cross_entropy(forward(own_x[index]), own_y[index])).backward()
        optimizer.step()
"""

RATES = """
for name, mode in MODES.items():
    model, (split, optimizer) = network(mode), sharded(mode)
    with torch.no_grad():  # something is dead, on one rank alone
        for _, entry in vbdrop.objective.noisy_tensors(model):
            entry.rate.view(-1)[0] = 9.0
        for _, entry in vbdrop.objective.noisy_tensors(split):
            first = entry.rate.to_local().view(-1)[:1]
            first.fill_(9.0) if rank == 0 else None
    for layer, rate in vbdrop.rates(model).items():
        other = vbdrop.rates(split)[layer]
        assert (rate.count, rate.dead) == (other.count, other.dead) and abs(rate.p - other.p) < 1e-6, (name, layer)
    vbdrop.freeze_dead_(model) if name in ("Weights", "Units") else None
    vbdrop.freeze_dead_(split) if name in ("Weights", "Units") else None
    whole = gather(split, plain)
    if rank == 0:
        assert far(whole, model) == 0.0 and vbdrop.rates(whole) == vbdrop.rates(model), name
"""

TRAINED = """
for name, mode in MODES.items():
    model, (split, optimizer) = network(mode), sharded(mode)
    start = vbdrop.kl(model).item()
    assert abs(reduced_kl(split) - start) < 1e-4 * start
    train(DDP(model), model, torch.optim.Adam(vbdrop.param_groups(model, lr=1e-2)), range(20))
    train(split, split, optimizer, range(20))
    whole = gather(split, plain)
    small = compress_sharded(split, plain, x[0, :4])
    if rank == 0:
        assert far(whole, model) < 1e-5, (name, far(whole, model))
        assert torch.allclose(small.model(x[0]), model(x[0]), atol=1e-4)
        print(name, far(model, network(mode)) > 0.1)
    else:
        assert whole is None and small is None
"""


def test_a_sharded_model_has_the_rates_of_the_whole_and_trains_as_a_replicated_one(tmp_path):
    first, other = run_ranks(SETTING + RATES + TRAINED, 2, tmp_path)
    modes = ["Weights", "Units", "Rates per weight", "Rates per unit", "Rates per layer"]
    assert first.splitlines() == [f"{mode} True" for mode in modes]
    assert other == ""


ON_DISK = """
for name, mode in MODES.items():
    whole, optimizer = sharded(mode)
    train(whole, whole, optimizer, range(20))
    split, optimizer = sharded(mode)
    train(split, split, optimizer, range(10))
    of_model, of_optimizer = get_state_dict(split, optimizer)
    dcp.save({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=f"{folder}/{name}")
    again, optimizer = sharded(mode)
    of_model, of_optimizer = get_state_dict(again, optimizer)
    state = {"model": of_model, "optimizer": of_optimizer}
    dcp.load(state, checkpoint_id=f"{folder}/{name}")
    set_state_dict(again, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(again, again, optimizer, range(10, 20))
    assert all(torch.equal(a.to_local(), b.to_local()) for a, b in zip(whole.parameters(), again.parameters()))
split, optimizer = sharded(vbdrop.Units())
plan = vbdrop.compress(network(vbdrop.Units()), x[0], rewrite=False).plan
try:
    vbdrop.apply_plan_(plan, split, optimizer)
except ValueError as error:
    print(error)
try:
    vbdrop.compress(split, x[0])
except ValueError as error:
    print(error)
try:
    target = vbdrop.Target(max_latency="1 us", steps=10, example_inputs=x[0, :2])
    vbdrop.ELBO(split, n_train=100, target=target)
except ValueError as error:
    print(error)
"""


@only_in_stress
def test_a_checkpoint_on_disk_goes_on_to_the_same_bits_and_shrinking_is_refused(tmp_path):
    for said in run_ranks(SETTING + ON_DISK, 2, tmp_path):
        shrinking, compressing, timing = said.splitlines()
        assert shrinking.startswith("`target` must have whole parameters; those of this one are distributed over")
        assert compressing.startswith("`model` must have whole parameters; those of this one are distributed over")
        assert "cannot be pursued in several processes" in timing


PURSUIT = """
from vbdrop.targets.prunable import prunables

STEPS = 60
TARGETS = {"Units": vbdrop.Target(macs=2, steps=STEPS), "Weights": vbdrop.Target(weights=4, steps=STEPS)}

def pursuing(model, name):
    target = dataclasses.replace(TARGETS[name], example_inputs=x[0, :2])
    return vbdrop.ELBO(model.train(), n_train=100, target=target, check_every=0)

def pursue(forward, elbo, optimizer, steps):
    handle = elbo.attach(optimizer)
    for index in steps:
        torch.manual_seed(100 * index + rank)
        optimizer.zero_grad()
        F.cross_entropy(forward(own_x[index % 20]), own_y[index % 20]).backward()
        optimizer.step()
    handle.remove()
    return elbo.observers[0]

def masks(model):
    return [one.alive() for one in prunables(model)]

def adam(model):
    return torch.optim.Adam(vbdrop.param_groups(model, lr=1e-2, rate_lr=0.3))

for name in TARGETS:
    model = network(MODES[name])
    elbo = pursuing(model, name)
    alone = pursue(DDP(model), elbo, adam(model), range(STEPS))
    split, _ = sharded(MODES[name])
    elbo = pursuing(split, name)
    together = pursue(split, elbo, adam(split), range(STEPS))
    assert together.is_cut and len(together.walk) > 20
    for one, other in zip(alone.walk, together.walk, strict=True):
        assert one.size == other.size and abs(one.kl_weight / other.kl_weight - 1) < 1e-3, (name, one, other)
    assert all(torch.equal(a, b) for a, b in zip(masks(model), masks(split), strict=True)), name
    said = [None] * world
    dist.all_gather_object(said, [mask.tolist() for mask in masks(split)])
    assert said[0] == said[1]
    whole, small = gather(split, plain), compress_sharded(split, plain, x[0, :4], recalibrate=False)
    if rank == 0:
        assert far(whole, model) < 1e-4, (name, far(whole, model))
        assert together.exact_size(vbdrop.deterministic_(copy.deepcopy(whole))) <= together.limit
        kept = sum(int(torch.count_nonzero(p)) for p in small.model.parameters() if p.dim() > 1)
        print(name, kept <= (81 / 4 if name == "Weights" else 81 / 2), 81 - kept > 0)
"""

RESUMED = """
name = "Weights"
split, _ = sharded(MODES[name])
elbo, optimizer = pursuing(split, name), adam(split)
pursue(split, elbo, optimizer, range(30))
of_model, of_optimizer = get_state_dict(split, optimizer)
dcp.save({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder + "/target")
kept = elbo.state_dict()
pursue(split, elbo, optimizer, range(30, STEPS))
again, _ = sharded(MODES[name])
elbo, optimizer = pursuing(again, name), adam(again)
of_model, of_optimizer = get_state_dict(again, optimizer)
state = {"model": of_model, "optimizer": of_optimizer}
dcp.load(state, checkpoint_id=folder + "/target")
set_state_dict(again, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
elbo.load_state_dict(kept)
assert not all(bool(mask.all()) for mask in masks(again))
pursue(again, elbo, optimizer, range(30, STEPS))
assert all(torch.equal(a.to_local(), b.to_local()) for a, b in zip(split.parameters(), again.parameters()))
assert all(torch.equal(a, b) for a, b in zip(masks(split), masks(again), strict=True))
"""


@only_in_stress
def test_a_target_steers_a_sharded_model_as_a_replicated_one_and_goes_on_from_a_checkpoint(tmp_path):
    first, _ = run_ranks("import copy, dataclasses\n" + SETTING + PURSUIT + RESUMED, 2, tmp_path)
    assert first.splitlines() == ["Units True True", "Weights True True"]

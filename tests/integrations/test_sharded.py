import pytest
import torch
from tests.integrations.ranks import run_ranks
from tests.stress import only_in_stress

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no process groups")

SETTING = """
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
    elbo = vbdrop.ELBO(model, n_train=100, check_every=0)
    for index in steps:
        optimizer.zero_grad()
        elbo(F.cross_entropy(forward(own_x[index]), own_y[index])).backward()
        optimizer.step()
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


def test_a_sharded_model_trains_as_a_replicated_one_and_is_gathered_and_compressed(tmp_path):
    first, other = run_ranks(SETTING + TRAINED, 2, tmp_path)
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
    target = vbdrop.Target(macs=2, steps=10, example_inputs=x[0, :2])
    vbdrop.ELBO(split, n_train=100, target=target)
except ValueError as error:
    print(error)
"""


@only_in_stress
def test_a_checkpoint_on_disk_goes_on_to_the_same_bits_and_shrinking_is_refused(tmp_path):
    for said in run_ranks(SETTING + ON_DISK, 2, tmp_path):
        shrinking, pursuing = said.splitlines()
        assert shrinking.startswith("`target` must have whole parameters; those of this one are distributed over")
        assert pursuing.startswith("a target needs whole parameters; those of this model are distributed over")

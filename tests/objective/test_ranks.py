import pytest
import torch
from tests.processes import run_all
from tests.stress import only_in_stress
from torch import nn

from vbdrop import Weights, convert_
from vbdrop.objective.ranks import RankWatch, noise_state

PROGRAM = """
import sys, warnings
import torch, torch.distributed as dist
from torch import nn
import vbdrop

rank, store, seeds = int(sys.argv[1]), sys.argv[2], [int(seed) for seed in sys.argv[3].split(",")]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=len(seeds))
torch.manual_seed(0)
model = nn.Linear(4, 2)
vbdrop.convert_(model, vbdrop.Weights())
replica = nn.parallel.DistributedDataParallel(model)
elbo = vbdrop.ELBO(replica, n_train=100, check_every=2)
optimizer = torch.optim.Adam(vbdrop.param_groups(replica, lr=1e-3))
torch.manual_seed(seeds[rank])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(6):
        optimizer.zero_grad()
        elbo(replica(torch.ones(3, 4)).square().mean()).backward()
        optimizer.step()
print([str(each.message).partition(":")[0] for each in caught if "draw the same noise" in str(each.message)])
dist.barrier()
dist.destroy_process_group()
"""


def run(seeds, folder):
    """What each rank said."""
    arguments = [str(folder / "store"), ",".join(map(str, seeds))]
    ended = run_all([(PROGRAM, [str(rank), *arguments]) for rank in range(len(seeds))], seconds=120)
    assert [rank.code for rank in ended] == [0] * len(seeds), ended
    return [rank.out.strip() for rank in ended]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no process groups")
def test_ranks_with_the_same_noise_are_told_by_the_first_of_them(tmp_path):
    first, *others = run([7, 5, 5], tmp_path)
    assert first == "[]"
    assert others == ["['the ranks 1, 2 of the process group draw the same noise']", "[]"]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no process groups")
@only_in_stress
def test_ranks_with_noise_of_their_own_are_fine(tmp_path):
    assert run([3, 4], tmp_path) == ["[]", "[]"]


def test_without_a_process_group_there_is_nothing_to_compare():
    model = nn.Linear(4, 2)
    convert_(model, Weights())
    assert RankWatch(model).twins() == []


def test_the_state_is_that_of_the_next_draw():
    state = noise_state(torch.device("cpu"))
    assert noise_state(torch.device("cpu")) == state
    first = torch.rand(1)
    assert noise_state(torch.device("cpu")) != state
    torch.manual_seed(0)
    assert noise_state(torch.device("cpu")) == state
    assert torch.equal(torch.rand(1), first)

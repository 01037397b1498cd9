import pytest
import torch
from tests.integrations.ranks import run_ranks
from tests.stress import only_in_stress
from torch import nn

from vbdrop.compression.rewriting.wrappers import check_unwrapped, retire_wrappers_

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no process groups")

PROGRAM = """
from torch.distributed.fsdp import fully_shard
from vbdrop.compression.rewriting.wrappers import check_unwrapped, retire_wrappers_

def said(call, *arguments):
    try:
        call(*arguments)
    except (RuntimeError, ValueError) as error:
        return str(error).partition(";")[0].partition(",")[0]

outer = nn.Sequential(nn.Linear(2, 2))
around, inside, other = DDP(outer), DDP(outer[0]), DDP(nn.Linear(2, 2))
print(said(check_unwrapped, around))
retire_wrappers_(outer)
x = torch.zeros(1, 2)
for wrapper in (around, inside, other, DDP(outer)):
    print(said(wrapper, x))
sharded = nn.Linear(4, 2)
vbdrop.convert_(sharded, vbdrop.Weights())
fully_shard(sharded, mesh=torch.distributed.init_device_mesh("cpu", (world,)))
print(said(check_unwrapped, sharded))
print(said(vbdrop.compress, sharded, torch.zeros(1, 4)))
"""


@only_in_stress
def test_wrappers_from_before_are_refused_and_others_are_not(tmp_path):
    stale = "this DistributedDataParallel was made before its model became smaller"
    for said in run_ranks(PROGRAM, 2, tmp_path):
        assert said.splitlines() == [
            "`target` must be the model itself",
            stale,
            stale,
            "None",
            "None",
            "`target` must have whole parameters",
            "`model` must have whole parameters",
        ]


def test_without_processes_nothing_is_looked_for():
    model = nn.Linear(2, 2)
    check_unwrapped(model)
    retire_wrappers_(model)
    assert model(torch.zeros(1, 2)).shape == (1, 2)

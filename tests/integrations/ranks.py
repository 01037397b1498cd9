"""Programs that run as several processes of one group."""

from pathlib import Path

from tests.processes import Ended, run_all

HEAD = """
import datetime, sys
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import vbdrop

torch.set_num_threads(1)
rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
patience = datetime.timedelta(seconds=240)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[4]}", rank=rank, world_size=world, timeout=patience)
"""

TAIL = """
dist.barrier()
dist.destroy_process_group()
"""


def ended_ranks(program: str, world: int, folder: Path, *, head: str = HEAD, tail: str = TAIL) -> list[Ended]:
    """How each rank of a program ended; without the usual head, it makes its process group itself."""
    store = folder / f"store-{len(list(folder.glob('store-*')))}"
    text = head + program + tail
    return run_all([(text, [str(rank), str(world), str(folder), str(store)]) for rank in range(world)], seconds=600)


def run_ranks(program: str, world: int, folder: Path) -> list[str]:
    """What each rank printed; all of them end well."""
    ended = ended_ranks(program, world, folder)
    assert [rank.code for rank in ended] == [0] * world, "\n".join(rank.error for rank in ended)
    return [rank.out.strip() for rank in ended]

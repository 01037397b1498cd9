"""Programs that run as several processes of one group."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

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


class Ended(NamedTuple):
    """How a rank ended."""

    code: int
    out: str
    error: str


def ended_ranks(program: str, world: int, folder: Path, *, head: str = HEAD, tail: str = TAIL) -> list[Ended]:
    """How each rank of a program ended; without the usual head, it makes its process group itself."""
    store = folder / f"store-{len(list(folder.glob('store-*')))}"
    arguments = [str(world), str(folder), str(store)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", head + program + tail, str(rank), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    said = [rank.communicate(timeout=600) for rank in ranks]
    return [Ended(rank.returncode, out.strip(), error) for rank, (out, error) in zip(ranks, said, strict=True)]


def run_ranks(program: str, world: int, folder: Path) -> list[str]:
    """What each rank printed; all of them end well."""
    ended = ended_ranks(program, world, folder)
    assert [rank.code for rank in ended] == [0] * world, "\n".join(rank.error for rank in ended)
    return [rank.out for rank in ended]

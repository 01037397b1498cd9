"""Programs that run as several processes of one group."""

import subprocess
import sys
from pathlib import Path

HEAD = """
import sys
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import vbdrop

torch.set_num_threads(1)
rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
"""

TAIL = """
dist.barrier()
dist.destroy_process_group()
"""


def run_ranks(program: str, world: int, folder: Path) -> list[str]:
    """What each rank printed; all of them end well."""
    arguments = [str(world), str(folder)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", HEAD + program + TAIL, str(rank), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    ended = [rank.communicate(timeout=300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world, "\n".join(error for _, error in ended)
    return [out.strip() for out, _ in ended]

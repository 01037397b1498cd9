import socket
from pathlib import Path

import pytest
import torch
from tests.processes import run_all

EXAMPLE = Path(__file__).parents[2] / "examples/distributed_digits.py"

AS_TORCHRUN_DOES = """
import os, runpy, sys
example, rank, port, *arguments = sys.argv[1:]
os.environ |= {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
sys.argv = [example, *arguments]
runpy.run_path(example, run_name="__main__")
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no process groups")
def test_two_processes_train_one_network():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = str(server.getsockname()[1])
    arguments = ["--epochs", "1", "--examples", "200"]
    first, second = run_all(
        [(AS_TORCHRUN_DOES, [str(EXAMPLE), rank, port, *arguments]) for rank in "01"], 300, OMP_NUM_THREADS="1"
    )
    assert (first.code, second.code) == (0, 0), first.error + second.error
    assert "epoch 1:" in first.out
    assert "test error" in first.out

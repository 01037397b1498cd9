import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).parents[2]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no process groups")
def test_two_processes_train_one_network(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [str(PROJECT / "examples/distributed_digits.py"), "--epochs", "1", "--examples", "200"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *program], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "epoch 1:" in done.stdout
    assert "test error" in done.stdout

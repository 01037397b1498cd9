import os
import signal
import subprocess
import sys
import time

import pytest
from tests.integrations.extras import needs
from tests.integrations.ray_nodes import two_nodes
from tests.stress import count

needs("ray")

KILLS = 3
HERE = {**os.environ, "RAY_ADDRESS": "local"}  # a cluster of another test may be running here


def command(records, *options):
    return [sys.executable, "-m", "vbdrop", "table", "1", "--quick", "--records", str(records), *options]


in_stress = pytest.mark.skipif(not count(0, 1), reason="takes minutes, and runs in `make stress`")


@pytest.mark.stress
@in_stress
def test_a_cluster_whose_workers_are_killed_makes_the_table_of_this_machine(tmp_path):
    with two_nodes() as (environment, nodes):
        driver = subprocess.Popen(
            command(tmp_path / "there", "--on", "ray", "--json"),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        killed = set()
        while driver.poll() is None:
            busy = [pid for pid, title in nodes[1].workers if "_work" in title and pid not in killed]
            if busy and len(killed) < KILLS:
                time.sleep(0.2)  # into the run
                os.kill(busy[0], signal.SIGKILL)
                killed.add(busy[0])
            time.sleep(0.3)
        there, errors = driver.communicate()
    assert driver.returncode == 0, errors
    assert len(killed) == KILLS, "the runs were over before all workers were killed"
    here = subprocess.run(command(tmp_path / "here", "--json"), capture_output=True, text=True, check=True)
    assert there == here.stdout
    results = {path.parent.name: path.read_bytes() for path in (tmp_path / "here").glob("*/result.json")}
    assert len(results) > 90
    assert {path.parent.name: path.read_bytes() for path in (tmp_path / "there").glob("*/result.json")} == results
    assert not list((tmp_path / "there").glob("*/checkpoint.pt"))


def test_the_same_command_starts_ray_on_this_machine(tmp_path):
    done = subprocess.run(
        [*command(tmp_path, "--on", "ray", "--workers", "1"), "--defaults", "--row", "none", "--column", "100"],
        env=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "with 1 process" in done.stderr


MODULE = """
import torch
from torch import nn

def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))

def data():
    torch.manual_seed(0)
    x = torch.randn(100, 6)
    return x, (x[:, 0] > 0).long()
"""


@pytest.mark.stress
@in_stress
def test_several_targets_are_pursued_on_the_cluster_to_the_same_bits(tmp_path):
    (tmp_path / "own_module.py").write_text(MODULE)
    asked = ["own_module:make_model", "--data", "own_module:data", "--epochs", "4", "--lr", "0.01"]
    targets = ["--target", "macs=3", "--target", "weights=2"]
    for where in ("here", "ray"):
        options = [*asked, *targets, "--on", where, "--out", where, "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "vbdrop", "shrink", *options],
            cwd=tmp_path,
            env=HERE,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    for name in ("macs-3", "weights-2"):
        here, there = (tmp_path / where / name / "small.safetensors" for where in ("here", "ray"))
        assert here.read_bytes() == there.read_bytes()

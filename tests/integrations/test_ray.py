import os
import random
import signal
import subprocess
import sys
import time

from tests.integrations.extras import needs
from tests.integrations.ray_nodes import two_nodes
from tests.stress import only_in_stress

needs("ray")

KILLS = 3
HERE = {**os.environ, "RAY_ADDRESS": "local"}  # a cluster of another test may be running here


def command(records, *options):
    return [sys.executable, "-m", "vbdrop", "table", "1", "--quick", "--records", str(records), *options]


def run(arguments, **options):
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done


def results(records):
    return {path.parent.name: path.read_bytes() for path in records.glob("*/result.json")}


@only_in_stress
def test_a_cluster_whose_workers_are_killed_makes_the_table_of_this_machine(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    table = run(command(here, "--json")).stdout
    moments = sorted(random.Random(0).sample(range(len(results(here)) - 10), KILLS))  # by the number of finished runs
    killed = []
    printed, errors = tmp_path / "table.json", tmp_path / "errors"
    with two_nodes() as (environment, nodes), printed.open("w") as out, errors.open("w") as err:
        driver = subprocess.Popen(command(there, "--on", "ray", "--json"), env=environment, stdout=out, stderr=err)
        while driver.poll() is None:
            busy = [pid for pid, title in nodes[1].workers if "_work" in title and pid not in killed]
            if busy and len(killed) < KILLS and len(results(there)) >= moments[len(killed)]:
                os.kill(busy[0], signal.SIGKILL)
                killed.append(busy[0])
            time.sleep(0.3)
    assert driver.returncode == 0, errors.read_text()
    assert len(killed) == KILLS, "the runs were over before all workers were killed"
    assert printed.read_text() == table
    assert results(there) == results(here)
    assert not list(there.glob("*/checkpoint.pt"))


def test_the_same_command_starts_ray_on_this_machine(tmp_path):
    options = "--on", "ray", "--workers", "1", "--defaults", "--row", "none", "--column", "100"
    done = run(command(tmp_path, *options), env=HERE)
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


@only_in_stress
def test_several_targets_are_pursued_on_the_cluster_to_the_same_bits(tmp_path):
    (tmp_path / "own_module.py").write_text(MODULE)
    asked = ["own_module:make_model", "--data", "own_module:data", "--epochs", "4", "--lr", "0.01"]
    targets = ["--target", "macs=3", "--target", "weights=2"]
    for where in ("here", "ray"):
        options = [*asked, *targets, "--on", where, "--out", where, "--json"]
        run([sys.executable, "-m", "vbdrop", "shrink", *options], cwd=tmp_path, env=HERE)
    for name in ("macs-3", "weights-2"):
        here, there = (tmp_path / where / name / "small.safetensors" for where in ("here", "ray"))
        assert here.read_bytes() == there.read_bytes()

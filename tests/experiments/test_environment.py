"""What is written down about the machine."""

import json
import re
import subprocess
from pathlib import Path

import torch

from vbdrop.experiments.environment import commit, environment, now


def test_the_environment_is_plain_data_with_the_versions_that_matter():
    found = json.loads(json.dumps(environment()))
    assert found["versions"]["torch"] == torch.__version__
    assert set(found["versions"]) == {"python", "vbdrop", "torch", "numpy", "commit", "kernels"}
    assert found["threads"] == torch.get_num_threads()
    assert found["machine"]["processor"]
    assert found["machine"]["capability"] == torch.backends.cpu.get_cpu_capability()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", now())


def test_a_run_with_the_plain_formulas_has_no_kernels():
    assert environment("plain")["versions"]["kernels"] == "none"
    assert environment("plain")["arithmetic"] == "plain"


def test_the_commit_is_that_of_this_repository():
    head = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    expected = head.stdout.strip() if head.returncode == 0 else "unknown"
    assert commit().rstrip("+") == expected

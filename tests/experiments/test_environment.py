"""What is written down about the machine."""

import json
import re

import torch

from vbdrop.experiments.environment import environment, now


def test_the_environment_is_plain_data_with_the_versions_that_matter():
    found = json.loads(json.dumps(environment()))
    assert found["versions"]["torch"] == torch.__version__
    assert set(found["versions"]) == {"python", "vbdrop", "torch", "numpy", "kernels"}
    assert found["threads"] == torch.get_num_threads()
    assert found["machine"]["processor"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", now())

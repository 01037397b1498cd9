"""What is written down about the machine."""

import json
import re

import torch

from vbdrop.experiments.environment import environment, kernels, now
from vbdrop.functional import native


def test_the_environment_is_plain_data_with_the_versions_that_matter():
    found = json.loads(json.dumps(environment()))
    assert found["versions"]["torch"] == torch.__version__
    assert set(found["versions"]) == {"python", "vbdrop", "torch", "numpy", "kernels"}
    assert found["threads"] == torch.get_num_threads()
    assert found["machine"]["processor"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", now())


def test_the_kernels_are_told_apart_by_every_line_of_their_source(compiler, tmp_path, monkeypatch):
    here = kernels()
    for name in ("SOURCES", "HEADERS"):
        copies = [tmp_path / file.name for file in getattr(native, name)]
        for copy, file in zip(copies, getattr(native, name), strict=True):
            copy.write_bytes(file.read_bytes())
        monkeypatch.setattr(native, name, copies)
    assert kernels() == here
    digests = {here}
    for file in (*native.SOURCES, *native.HEADERS):
        file.write_text(file.read_text() + "/* changed */\n")
        digests.add(kernels())
    assert len(digests) == 1 + len(native.SOURCES) + len(native.HEADERS) > 1

"""What a bug report needs."""

import json
import os
import subprocess
import sys
from importlib.metadata import metadata

import torch

from vbdrop.kernels import compiler_version, in_use, kernels


def test_it_says_what_is_in_use(vbdrop, compiler, switched_on):
    found = vbdrop("info", "--json").json
    assert found["versions"]["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["machine"]["capability"] == torch.backends.cpu.get_cpu_capability()
    assert found["kernels"] == {
        "in use": True, "why not": None, "path": str(kernels().path), "source": in_use(),
    }  # fmt: skip
    assert found["compiler"] == {"path": compiler, "version": compiler_version(compiler)}
    assert found["compiler"]["version"] != "unknown"
    every = {extra for extra in metadata("vbdrop").get_all("Provides-Extra") if extra not in ("all", "docs", "dev")}
    assert set(found["extras"]) == every >= {"cli", "ray"}
    assert "ray" in found["extras"]["ray"]
    assert "vbdrop" not in found["extras"]["ray"], "it includes other extras of vbdrop"
    assert set(found["extras"]["cli"]) == {"typer", "rich"}
    assert all(version[0].isdigit() for version in found["extras"]["cli"].values())


def test_the_text_has_every_fact_on_a_line_of_its_own(vbdrop, switched_on):
    out = vbdrop("info").out
    assert f"torch: {torch.__version__}\n" in out
    assert "in use: yes\n" in out
    assert f"path: {kernels().path}\n" in out
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")] == [
        "versions", "machine", "threads", "kernels", "compiler", "cache", "extras", "variables",
    ]  # fmt: skip


def test_without_kernels_it_says_why(tmp_path):
    environment = {**os.environ, "VBDROP_NATIVE": "0", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "vbdrop", "info", "--json"]
    found = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert found["kernels"]["in use"] is False
    assert found["kernels"]["why not"] == "VBDROP_NATIVE=0 switches them off"
    assert found["variables"]["VBDROP_NATIVE"] == "0"
    assert found["cache"] == str(tmp_path / "vbdrop")

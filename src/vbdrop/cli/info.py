"""``vbdrop info``: the facts about this installation that a bug report needs."""

import os
import re
from importlib.metadata import requires
from typing import Any

import torch

from vbdrop.cache import cache_dir
from vbdrop.cli.console import print_json, verb
from vbdrop.cli.options import AsJson
from vbdrop.experiments.environment import environment, installed_version
from vbdrop.kernels import compiler_version, find_compiler, kernels, source_digest

app = verb()

VARIABLES = ("CC", "OMP_NUM_THREADS", "VBDROP_DATA", "VBDROP_NATIVE", "XDG_CACHE_HOME")
"""The environment variables that change what vbdrop does."""
SHOWN_EXTRAS = ("cli", "report", "export", "data", "lightning", "transformers", "skorch", "ray")


@app.command()
def info(as_json: AsJson = False) -> None:
    """Print what a bug report needs: versions, kernels, compiler, threads, cache, extras.

    The kernels are built if necessary, so that the answer is what a training run would get.
    """
    found = facts()
    if as_json:
        print_json(found)
        return
    lines = [(name, text) for name, value in found.items() for text in _lines(value)]
    width = max(len(name) for name in found)
    before = ""
    for name, text in lines:
        print(f"{name if name != before else '':<{width}}  {text}")
        before = name


def facts() -> dict[str, Any]:
    """Gather the facts about this installation, as plain data.

    Example:
        >>> sorted(facts())
        ['cache', 'compiler', 'extras', 'kernels', 'machine', 'threads', 'variables', 'versions']
    """
    here, compiled, compiler = environment(), kernels(), find_compiler()
    versions = {name: value for name, value in here["versions"].items() if name != "kernels"}
    return {
        "versions": versions,
        "machine": {**here["machine"], "capability": torch.backends.cpu.get_cpu_capability()},
        "threads": here["threads"],
        "kernels": {
            "in use": not compiled.reason,
            "why not": compiled.reason or None,
            "path": None if compiled.path is None else str(compiled.path),
            "source": source_digest(),
        },
        "compiler": None if compiler is None else {"path": compiler, "version": compiler_version(compiler)},
        "cache": str(cache_dir()),
        "extras": {extra: _packages(extra) for extra in SHOWN_EXTRAS},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _packages(extra: str) -> dict[str, str]:
    """Return the packages of an extra, as listed in the metadata, and their installed versions."""
    found = {}
    for requirement in requires("vbdrop") or []:
        name, _, condition = requirement.partition(";")
        if re.search(rf"extra == ['\"]{extra}['\"]", condition):
            package = re.split(r"[^\w.-]", name.strip(), maxsplit=1)[0]
            found[package] = installed_version(package)
    found.pop("vbdrop", None)  # an extra may include another one
    return found


def _lines(value: object) -> list[str]:
    """A fact as lines of text."""
    if not isinstance(value, dict):
        return ["none" if value is None else str(value)]
    lines = []
    for name, each in value.items():
        if isinstance(each, dict):
            lines.append(f"{name}: " + ", ".join(f"{key} {version}" for key, version in each.items()))
        elif each is not None:
            lines.append(f"{name}: {'yes' if each is True else 'no' if each is False else each}")
    return lines or ["none"]

"""Imports go one way, down the list of rooms, and what must stay light loads no torch."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src/vbdrop"

ROOMS = (  # each may import itself and those before it
    "_torch_compat",
    "cache",
    "files",
    "record_schema",
    "sheets",
    "priors",
    "functional",
    "kernels",
    "layers",
    "objective",
    "analysis",
    "convert",
    "moments",
    "prediction",
    "models",
    "compression",
    "exporting",
    "targets",
    "data",
    "train",
    "methods",
    "experiments",
    "integrations",
    "report",
    "cli",
    "__main__",
)


BY_NAME = re.compile(r"(?:importlib\.)?(?:import_module|__import__)\('([\w.]+)'")


class Import(NamedTuple):
    line: int
    target: str
    when: str  # "load": with the module; "call": inside a function; "typing": for the type checker alone


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    """Every import in a file, with relative names resolved; `from a import b` counts as a.b."""
    package = ("vbdrop", *path.relative_to(root).parent.parts)

    def visit(node: ast.AST, when: str) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name, when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (Import(node.lineno, f"{stem}.{alias.name}", when) for alias in node.names)
        elif isinstance(node, ast.Call) and (named := BY_NAME.match(ast.unparse(node))):
            yield Import(node.lineno, named[1], when)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            when = "typing"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and when == "load":
            when = "call"
        for child in ast.iter_child_nodes(node):
            yield from visit(child, when)

    return visit(ast.parse(path.read_text()), "load")


def back_edges(root: Path) -> list[str]:
    """The imports that go up the list of rooms, or through the top-level package, which knows all rooms."""
    found = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts == ("__init__.py",):
            continue
        room = relative.parts[0].removesuffix(".py")
        if room not in ROOMS:
            found.append(f"{relative}: the room {room!r} is not in ROOMS")
            continue
        for line, target, _ in imports_of(path, root):
            names = target.split(".")
            if names[0] != "vbdrop":
                continue
            if len(names) == 1 or names[1] not in ROOMS:
                found.append(f"{relative}:{line} imports {target}: import a name from its room")
            elif ROOMS.index(names[1]) > ROOMS.index(room):
                found.append(f"{relative}:{line} imports {target}: {names[1]} comes after {room}")
    return found


def ways_to_torch(root: Path, room: str) -> list[str]:
    """How the files of a room come to import torch: themselves, anywhere, or by loading one that does."""
    modules = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(["vbdrop", *(part for part in parts if part != "__init__")])] = path
    inside = [m for m in modules if m == f"vbdrop.{room}" or m.startswith(f"vbdrop.{room}.")]
    way = {module: module for module in inside}
    queue, found = list(inside), []
    while queue:
        module = queue.pop()
        for line, target, when in imports_of(modules[module], root):
            if module not in inside and when != "load":
                continue
            names = target.split(".")
            if names[0] == "torch":
                found.append(f"{way[module]}:{line} -> torch")
            for length in range(1, len(names) + 1):
                loaded = ".".join(names[:length])
                if loaded in modules and loaded not in way:
                    way[loaded] = f"{way[module]}:{line} -> {loaded}"
                    queue.append(loaded)
    return found


def test_imports_go_one_way():
    assert back_edges(SOURCE) == []


def test_the_report_needs_no_torch():
    assert ways_to_torch(SOURCE, "report") == []


def test_importing_vbdrop_does_not_import_torch():
    code = "import sys, vbdrop; dir(vbdrop); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    "line",
    [
        "import vbdrop.convert",
        "from vbdrop.convert import convert_",
        "from vbdrop import convert",
        "from vbdrop import convert_",
        "from ..convert import convert_",
        "from .. import convert",
        "import vbdrop",
        "def f():\n    from vbdrop.convert import convert_",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vbdrop.convert import convert_",
        "import importlib\nimportlib.import_module('vbdrop.convert')",
    ],
)
def test_a_back_edge_is_seen_in_every_form(tmp_path, line):
    assert len(back_edges(write(tmp_path, layers__linear=line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "import torch",
        "from vbdrop.priors import PRIORS",
        "from ..functional.kl import kl",
        "from . import conv",
    ],
)
def test_an_import_down_the_list_is_fine(tmp_path, line):
    assert back_edges(write(tmp_path, layers__linear=line)) == []


def test_a_new_room_has_to_be_listed(tmp_path):
    assert back_edges(write(tmp_path, attic__box="")) == ["attic/box.py: the room 'attic' is not in ROOMS"]


def test_a_way_to_torch_is_seen_through_other_modules(tmp_path):
    files = {"data__digits": "import torch", "data__sources": "def load():\n    import torch"}
    write(tmp_path, report__page="from vbdrop.data.sources import load", **files)
    assert ways_to_torch(tmp_path, "report") == []
    (tmp_path / "data/__init__.py").write_text("from vbdrop.data.digits import digits")
    assert ways_to_torch(tmp_path, "report") == [
        "vbdrop.report.page:1 -> vbdrop.data:1 -> vbdrop.data.digits:1 -> torch"
    ]
    write(tmp_path, report__figures="def draw():\n    import torch")
    assert len(ways_to_torch(tmp_path, "report")) == 2

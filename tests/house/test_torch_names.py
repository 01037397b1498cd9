"""Names that PyTorch does not promise are used in one file, so that a new version of it changes one file."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/vbdrop"

COMPAT = "_torch_compat.py"

OF_A_MODULE = {  # what `torch.nn.Module` and its subclasses offer to those who write subclasses
    "_apply",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_buffers",
    "_conv_forward",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_load_from_state_dict",
    "_modules",
    "_parameters",
    "_reversed_padding_repeated_twice",
}

OF_PYTHON = {"_asdict", "_exit", "_getframe", "_replace"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.AST) -> set[str]:
    """The private names that a file defines: functions, methods, attributes of `self`."""
    defined = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            defined.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
    return defined


def private_uses(text: str, allowed: set[str]) -> list[str]:
    """The imports of private names from torch, and private attributes that neither we nor Python nor `Module` has."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found += [f"{node.lineno}: {node.module}" for _ in filter(is_private, names)]
        elif isinstance(node, ast.Import):
            paths = [alias.name for alias in node.names if alias.name.split(".")[0] == "torch"]
            found += [f"{node.lineno}: {path}" for path in paths if any(map(is_private, path.split(".")))]
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in allowed:
            path = ast.unparse(node)
            if not path.startswith(("torch.ops.aten.", "aten.")):  # names of operations
                found.append(f"{node.lineno}: {path}")
    return found


def test_no_other_file_uses_a_private_name_of_torch():
    files = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    ours = set().union(*(own_names(ast.parse(text)) for text in files.values()))
    allowed = ours | OF_A_MODULE | OF_PYTHON
    found = [f"{name}:{use}" for name, text in files.items() if name != COMPAT for use in private_uses(text, allowed)]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "from torch.utils import _pytree as pytree",
        "from torch._ops import OpOverload",
        "import torch._dynamo",
        "torch._C._functorch",
        "node.target._schema",
    ],
)
def test_a_private_name_is_seen_in_every_form(line):
    assert private_uses(line, allowed=set())


@pytest.mark.parametrize("line", ["import torch", "torch.ops.aten._unsafe_view.default", "self.__dict__", "a._own"])
def test_what_is_public_or_our_own_is_fine(line):
    assert private_uses(line, allowed={"_own"}) == []

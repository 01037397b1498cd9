"""Every file has its test, an ``__init__`` holds names only, and nothing is too long to be taken in."""

import ast
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src/vbdrop"

WITHOUT_A_TEST_OF_ITS_OWN: dict[str, str] = {}  # "room/file.py" -> why; a test elsewhere has to cover it

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70  # without its docstring


def test_every_source_file_has_its_test():
    missing = []
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        if path.name == "__init__.py" or relative.as_posix() in WITHOUT_A_TEST_OF_ITS_OWN:
            continue
        test = PROJECT / "tests" / relative.parent / f"test_{path.stem.strip('_')}.py"
        if not test.is_file():
            missing.append(test.relative_to(PROJECT).as_posix())
    assert missing == []


def test_every_exception_is_of_a_file_that_exists():
    assert [name for name in WITHOUT_A_TEST_OF_ITS_OWN if not (SOURCE / name).is_file()] == []


def only_imports(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def is_a_name_table(node: ast.stmt, top: bool) -> bool:
    """`__all__`; in the top-level package also its lazy table, a dict, and `__version__`."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    return name == "__all__" or (top and (name == "__version__" or isinstance(node.value, ast.Dict)))


def stray_statements(text: str, top: bool) -> list[str]:
    """What an `__init__.py` holds beyond a docstring, imports and names."""
    tree = ast.parse(text)
    stray = []
    for node in tree.body[ast.get_docstring(tree) is not None :]:
        lazy = top and (
            (isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__"))
            or (
                isinstance(node, ast.If)
                and ast.unparse(node.test) == "TYPE_CHECKING"
                and all(map(only_imports, node.body))
            )
        )
        if not (only_imports(node) or is_a_name_table(node, top) or lazy):
            stray.append(ast.unparse(node).splitlines()[0])
    return stray


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_an_init_holds_names_only(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "an __init__.py says in a docstring what its room is for"
    assert stray_statements(text, top=path.parent == SOURCE) == []


def test_logic_in_an_init_is_seen():
    text = '"""A."""\nfrom a import b\n__all__ = ["b"]\nTABLE = {"b": b}\ndef __getattr__(name): ...\nb.x = 1\n'
    assert stray_statements(text, top=False) == ["TABLE = {'b': b}", "def __getattr__(name):", "b.x = 1"]
    assert stray_statements(text, top=True) == ["b.x = 1"]


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    described = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
    return function.end_lineno - function.lineno + 1 - described


def test_files_and_functions_can_be_taken_in_at_once():
    too_long = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if (lines := len(text.splitlines())) > MAX_FILE_LINES:
            too_long.append(f"{path.relative_to(SOURCE)}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and own_lines(node) > MAX_FUNCTION_LINES:
                too_long.append(f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}: {own_lines(node)} lines")
    assert too_long == []


def test_a_docstring_does_not_count_as_code():
    (function,) = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    x = 1\n    return x\n').body
    assert own_lines(function) == 3


SAME_CLASS_TWICE = {"VBDropCallback": "the integrations of Lightning and transformers each have theirs"}


def test_no_two_classes_have_the_same_name():
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    assert {n: where for n, where in places.items() if len(where) > 1 and n not in SAME_CLASS_TWICE} == {}

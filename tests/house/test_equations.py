"""The page of equations names functions and tests that exist."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vbdrop.methods import METHODS

PROJECT = Path(__file__).parents[2]


def resolve(dotted: str) -> object:
    """The object behind a dotted name: the longest part that is a module, then attributes."""
    names = dotted.split(".")
    for length in range(len(names), 0, -1):
        try:
            found = importlib.import_module(".".join(names[:length]))
        except ModuleNotFoundError:
            continue
        for name in names[length:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def rows_of(markdown: str) -> Iterator[dict[str, str]]:
    """The rows of the tables in a page, by the titles of their columns."""
    titles: list[str] = []
    for line in markdown.splitlines():
        if not line.startswith("|"):
            titles = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        if not titles:
            titles = cells
        elif not all(re.fullmatch(":?-+:?", cell) for cell in cells):
            yield dict(zip(titles, cells, strict=True))


def has_test(identifier: str) -> bool:
    """Whether `tests/a/test_b.py::test_c` (or `::TestC::test_d`, with or without `[case]`) names a test."""
    file, *names = identifier.partition("[")[0].split("::")
    if not names or not (PROJECT / file).is_file():
        return False
    body = ast.parse((PROJECT / file).read_text()).body
    for name in names:
        match = [node for node in body if getattr(node, "name", None) == name]
        if not match:
            return False
        body = match[0].body
    return True


EQUATIONS = list(rows_of((PROJECT / "docs/equations.md").read_text()))


def test_the_page_of_equations_has_rows():
    assert EQUATIONS


@pytest.mark.parametrize("row", EQUATIONS, ids=lambda row: row["Equation"])
def test_an_equation_has_its_function_and_its_test(row):
    functions, tests = (
        re.findall(r"`(vbdrop\.[\w.]+)`", row["Function"]),
        re.findall(r"`(tests/[^`]+)`", row["Test"]),
    )
    assert functions
    assert tests
    assert [name for name in functions if not callable(resolve(name))] == []
    assert [name for name in tests if not has_test(name)] == []


def test_every_method_has_an_equation():
    named = " ".join(row["Function"] for row in EQUATIONS)
    files = {method.__name__: method.__module__ for method in METHODS.values() if method.name != "plain"}
    assert [name for name, file in files.items() if f"methods.{name}" not in named and f"{file}." not in named] == []


def test_a_wrong_row_is_seen():
    table = "| Equation | Function | Test |\n|---|:-:|---|\n| A \\| B | `vbdrop.nothing` | `tests/x.py::y` |\n"
    (row,) = rows_of(table)
    assert row["Equation"] == r"A \| B"
    with pytest.raises(AttributeError):
        resolve("vbdrop.nothing")
    assert not has_test(row["Test"].strip("`"))
    assert not has_test("tests/house/test_equations.py::test_z")
    assert has_test("tests/house/test_equations.py::test_a_wrong_row_is_seen")

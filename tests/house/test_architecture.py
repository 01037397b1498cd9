"""The walk on the page of the architecture, followed in the code."""

import ast
import inspect
import re
import sys
import textwrap
from types import FunctionType

import pytest
from tests.house.test_equations import PROJECT, resolve, rows_of

WALK = list(rows_of((PROJECT / "docs/architecture.md").read_text()))


def names_in(cell: str) -> list[str]:
    """The dotted names of a cell, with that of the package."""
    return [f"vbdrop.{name}" for name in re.findall(r"`([\w.]+)`", cell)]


def used_in(function: object) -> set[str]:
    """The names that the code of a function uses."""
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


def calls(caller: object, name: str) -> bool:
    """Whether a function uses another one, directly or through one helper of its own module."""
    here = [found for found in vars(sys.modules[caller.__module__]).values() if inspect.isclass(found)]
    owners = [sys.modules[caller.__module__], *(found for found in here if found.__module__ == caller.__module__)]
    helpers = [found for owner in owners for found in vars(owner).values() if isinstance(found, FunctionType)]
    used = used_in(caller)
    near = [found for found in helpers if found.__module__ == caller.__module__ and found.__name__ in used]
    return name in used or any(name in used_in(found) for found in near)


def returns(rooms: list[str]) -> list[str]:
    """The rooms to which a walk returns after it has left them."""
    turns = [room for room, before in zip(rooms, [None, *rooms], strict=False) if room != before]
    return [room for index, room in enumerate(turns) if room in turns[:index]]


@pytest.mark.parametrize("row", WALK, ids=lambda row: row["step"])
def test_a_step_calls_what_the_page_says(row):
    (caller,) = names_in(row["read"])
    called = names_in(row["which calls"])
    assert called
    for name in called:
        assert callable(resolve(name))
        assert calls(resolve(caller), name.rpartition(".")[2]), f"{caller} does not call {name}"


def test_the_walk_does_not_return_to_a_room_that_it_left():
    assert len(WALK) > 10
    assert returns([name.split(".")[1] for row in WALK for name in names_in(row["read"])]) == []


def test_a_wrong_step_is_seen():
    assert not calls(resolve("vbdrop.convert.conversion.convert_"), "find_live")
    assert returns(["convert", "layers", "layers", "convert"]) == ["convert"]

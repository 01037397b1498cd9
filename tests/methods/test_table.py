"""The table: every method of the room is in it, by its own name, and an unknown one is told the known ones."""

import pytest

from vbdrop import methods
from vbdrop.methods import METHODS, method_named
from vbdrop.train.method import Method


def test_every_method_of_the_room_is_in_the_table():
    public = [getattr(methods, name) for name in methods.__all__]
    kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, Method)}
    assert set(METHODS.values()) == kinds
    assert all(kind.name == name for name, kind in METHODS.items())


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        METHODS["another"] = Method


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"`method` must be one of plain, bernoulli-dropout, .*; got 'drop'"):
        method_named("drop")

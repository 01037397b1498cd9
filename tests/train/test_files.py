"""Files that are whole or not there."""

import math

import pytest

from vbdrop.train import RecordError
from vbdrop.train.files import read_json, write_json


def test_json_comes_back_to_the_bit(tmp_path):
    value = {"error": 0.1 + 0.2, "name": "Überprüft", "none": None, "list": [1, 2.5]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"error": math.nan})
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_json_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{"error": ')
    with pytest.raises(RecordError, match=r"a\.json is damaged: Expecting value"):
        read_json(tmp_path / "a.json")

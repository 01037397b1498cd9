"""A damaged file is named, with the place in it."""

import math

import pytest

from vbdrop.record_schema import NUMBER, OBJECT, TEXT, WHOLE, YES_OR_NO, DamagedError, Named, Optional, check

SPEC = {
    "epoch": WHOLE,
    "layers": [{"name": TEXT, "p": Optional(NUMBER)}],
    "left": Named(WHOLE),
    "more": OBJECT,
    "own": YES_OR_NO,
}
GOOD = {
    "epoch": 3,
    "layers": [{"name": "fc", "p": 0.5}, {"name": "out"}],
    "left": {"a": 1},
    "more": {},
    "own": True,
    "x": 1,
}


def test_what_is_right_passes_whatever_else_there_is():
    check(GOOD, SPEC, "f.json")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epoch": None}, "`epoch` must be a whole number; got nothing"),
        ({"epoch": True}, "`epoch` must be a whole number; got True"),
        ({"epoch": 1.5}, "`epoch` must be a whole number; got 1.5"),
        ({"epoch": 10**400}, "`epoch` must be a whole number; got 1000"),
        ({"layers": [{"name": "a", "p": 10**400}]}, r"`layers\[0\].p` must be a number; got 1000"),
        ({"layers": {}}, "`layers` must be a list; got {}"),
        ({"layers": [{"name": "a"}, {"name": 5}]}, r"`layers\[1\].name` must be text; got 5"),
        ({"layers": [{"name": "a", "p": math.nan}]}, r"`layers\[0\].p` must be a number; got nan"),
        ({"left": {"a": "b"}}, "`left.a` must be a whole number; got 'b'"),
        ({"more": []}, "`more` must be an object"),
        ({"own": 1}, "`own` must be true or false"),
        ({"own": "y" * 100}, "got 'yyyyyyy.*…$"),
    ],
)
def test_what_is_wrong_is_named(change, said):
    with pytest.raises(DamagedError, match=f"f.json is damaged: .*{said}|{said}"):
        check({**GOOD, **change}, SPEC, "f.json")


def test_the_whole_file_can_be_wrong():
    with pytest.raises(DamagedError, match="it must be an object; got"):
        check([1], SPEC, "f.json")

"""Templates escape, and ask for what they need."""

import json
import re

import pytest
from jinja2 import UndefinedError

from vbdrop.report.blocks import Slider
from vbdrop.report.template import fill


def test_a_template_that_misses_something_is_an_error():
    with pytest.raises(UndefinedError):
        fill("tables.html", title="a")


def test_json_cannot_end_a_script():
    shown = dict.fromkeys(("error", "weights", "fewer", "bytes"), "")
    point = {"threshold": "</script>&", "x": 1, **shown}
    slider = Slider("", "a caption", [point], 0)
    section = {"key": "a", "title": "A"}
    page = fill("report.html", title="t", heads=[], sections=[(section, [slider])], many=False)
    (script,) = re.findall(r'<script type="application/json">(.*?)</script>', page)
    assert json.loads(script)[0]["threshold"] == "</script>&"

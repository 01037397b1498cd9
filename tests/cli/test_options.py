"""Options that verbs share are the same in all of them."""

import re

import pytest


def described(text: str, option: str) -> str:
    found = re.search(rf"^  {option} [A-Z=]+ +(.*?)(?=^  --)", text, flags=re.S | re.M)
    return " ".join(found[1].split())


@pytest.mark.parametrize(
    ("option", "verbs"), [("--data-dir", ("train", "table", "compress")), ("--model", ("train", "bench"))]
)
def test_the_same_option_says_the_same(vbdrop, option, verbs):
    assert len({described(vbdrop(verb, "--help").out, option) for verb in verbs}) == 1

"""An epoch and a time span in words."""

import pytest

from vbdrop.train import Epoch, Evaluation, Sparsity
from vbdrop.train.epoch_words import duration, figures


def epoch(number, kept=20):
    return Epoch(number, 0.5, 1.0, 1.0, None, Evaluation(1000, 17, 0.1, 0.0), Sparsity(1000, {"fc": kept}))


def test_a_network_with_nothing_left_is_said_so():
    assert figures(epoch(3, kept=0)) == "error 1.70 %  no weights left"
    assert figures(epoch(3, kept=400)) == "error 1.70 %  weights 40.0 % (2.5x)"
    assert figures(epoch(3, kept=1000)) == "error 1.70 %"


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.4, "59 s"), (60, "1 min 0 s"), (599, "9 min 59 s"), (3599, "59 min"), (7260, "2 h 1 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text

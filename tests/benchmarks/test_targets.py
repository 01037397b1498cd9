"""The comparison of targets with KL weights that were chosen by hand."""

import pytest
import torch
from benchmarks.targets import error_on, held_target, table
from torch import nn

import vbdrop


def test_a_held_kl_weight_reaches_the_run_and_the_size_is_that_of_the_target():
    x = torch.randn(100, 6)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
    result = vbdrop.shrink(model, (x, y), target=held_target("macs=4", 0.7), epochs=6, lr=0.01, batch_size=25)
    pressed = [point for point in result.curve if point.stage == "press"]
    assert pressed[-1].kl_weight == 0.7
    assert pressed[-1].size == result.before  # nothing goes before the cut
    assert result.size <= result.before / 4


def test_the_table_has_the_best_of_the_held_weights_by_their_means():
    one = {"network": "net", "asked": "macs=3", "of limit": 0.99, "error_before": 5.0}
    errors = {None: (4.0, 4.2), 0.3: (3.0, 5.2), 1.0: (3.9, 4.1)}
    runs = [one | {"held": held, "error": error} for held, both in errors.items() for error in both]
    assert table(runs).splitlines()[-1].endswith("| 4.10 ± 0.14 | 1.0 | 4.00 ± 0.14 |")
    elsewhere = [run | {"others": run["error"] + (run["held"] == 1.0)} for run in runs]
    assert table(elsewhere).splitlines()[-1].endswith("| 4.10 ± 0.14 | 0.3 | 4.10 ± 1.56 |")


def test_an_error_is_in_percent():
    images = torch.eye(4).repeat(500, 1), torch.tensor([0, 1, 2, 0]).repeat(500)
    assert error_on(nn.Identity(), images) == pytest.approx(25.0)

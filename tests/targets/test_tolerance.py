"""As small as it gets within a tolerance."""

import pytest
import torch
from tests.stress import only_in_stress
from torch import nn

import vbdrop


@pytest.fixture(scope="module")
def data():
    torch.manual_seed(0)
    x = torch.randn(400, 10)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 2))


def walked(data, tmp_path=None, **arguments):
    target = vbdrop.Target(within=2.0, unit="weights", train=0.3, refine=0.3, **arguments)
    kept = {} if tmp_path is None else {"checkpoint": tmp_path / "run.pt"}
    return vbdrop.shrink(make(), data, valid=data, target=target, epochs=14, lr=0.01, **kept)


def test_the_walk_ends_small_and_within_the_tolerance(data):
    result = walked(data)
    assert result.limit is None
    assert result.times > 3  # two of ten inputs matter
    assert result.error <= result.error_before + 2.0
    pressed = [point for point in result.curve if point.stage != "train"]
    assert len(pressed) == 10
    assert all(point.error is not None for point in result.curve)


@only_in_stress
def test_a_function_of_ones_own_decides(data):
    asked = []

    def evaluate(model):
        assert not model.training
        asked.append(vbdrop.compress(model, data[0][:2]).summary().after.nonzeros)
        return 0.0 if asked[-1] > 100 else 50.0  # more than 100 weights, whatever they say

    target = vbdrop.Target(within=1.0, unit="weights", evaluate=evaluate, train=0.0, refine=0.3)
    result = vbdrop.shrink(make(), data, target=target, epochs=10)
    assert 100 < result.size < 120
    assert result.error == 0.0


def test_a_walk_goes_on_from_its_checkpoint_to_the_same_bits(data, tmp_path):
    class StopError(Exception):
        pass

    def stop(point, epochs):
        if point.epoch == 7:
            raise StopError

    whole = walked(data)
    target = vbdrop.Target(within=2.0, unit="weights", train=0.3, refine=0.3)
    arguments = {"valid": data, "target": target, "epochs": 14, "lr": 0.01, "checkpoint": tmp_path / "run.pt"}
    with pytest.raises(StopError):
        vbdrop.shrink(make(), data, progress=stop, **arguments)
    again = vbdrop.shrink(make(), data, **arguments)
    assert again.to_json() == whole.to_json()


def test_where_nothing_smaller_is_within_the_whole_network_stays(data):
    errors = iter([0.0, *[9.0] * 50])
    target = vbdrop.Target(within=0.1, evaluate=lambda model: next(errors), train=0.0, unit="weights")
    with pytest.warns(UserWarning, match=r"the error ended at 9, more than 0.1 above the start \(0\)"):
        result = vbdrop.shrink(make(), data, target=target, epochs=6)
    assert result.size == result.before


def test_a_size_is_chosen_by_its_error_after_training_at_it(data):
    """Under pressure nothing smaller fits; a size that was tried does."""
    judged = []

    def evaluate(model):
        judged.append(vbdrop.compress(model, data[0][:2]).summary().after.nonzeros)
        pressed = range(1, 8)  # the epochs of the walk come after the start
        return 9.0 if len(judged) - 1 in pressed or judged[-1] < 30 else 0.0

    target = vbdrop.Target(within=0.1, evaluate=evaluate, train=0.0, refine=0.3, unit="weights")
    result = vbdrop.shrink(make(), data, target=target, epochs=10)
    assert 30 <= result.size < result.before / 2
    assert result.error == 0.0
    tried = [point.size for point in result.curve if point.stage == "refine"]
    assert tried[-1] == result.size


def test_a_shock_of_the_first_epochs_does_not_end_the_walk(data):
    errors = iter([0.0, 9.0, 9.0, 9.0, *[0.0] * 50])
    target = vbdrop.Target(within=0.1, evaluate=lambda model: next(errors), train=0.0, unit="weights")
    result = vbdrop.shrink(make(), data, target=target, epochs=10)
    assert result.times > 2


def test_it_needs_an_epoch_to_press_and_one_to_refine(data):
    with pytest.raises(ValueError, match="at least one epoch to press and one to refine"):
        vbdrop.shrink(make(), data, valid=data, target=vbdrop.Target(within=1, refine=0), epochs=5)

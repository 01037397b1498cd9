import json

import pytest
import torch
from tests import trained


@pytest.fixture
def outcomes(tmp_path, monkeypatch):
    """The file in which outcomes are noted."""
    monkeypatch.setenv(trained.OUTCOMES_VARIABLE, str(tmp_path / "outcomes.jsonl"))
    return tmp_path / "outcomes.jsonl"


@pytest.mark.parametrize(("value", "expected"), [(None, 0), ("", 0), ("0", 0), ("7", 7)])
def test_the_environment_chooses_the_seed(monkeypatch, value, expected):
    monkeypatch.delenv(trained.SEED_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(trained.SEED_VARIABLE, value)
    assert trained.chosen_seed() == expected


@pytest.mark.parametrize("value", ["-1", "1.5", "seven"])
def test_any_other_seed_is_refused(monkeypatch, value):
    monkeypatch.setenv(trained.SEED_VARIABLE, value)
    with pytest.raises(ValueError, match=f"must be an integer >= 0; got '{value}'"):
        trained.chosen_seed()


def drawn(seed):
    torch.manual_seed(seed)
    return torch.rand(3)


def test_seeds_are_moved_and_the_move_ends(monkeypatch):
    first, second = drawn(0), drawn(1)
    monkeypatch.setenv(trained.SEED_VARIABLE, "7")
    with trained.moved_seeds():
        moved = drawn(0)
        assert not torch.equal(moved, first)
        assert torch.equal(drawn(0), moved)
        assert not torch.equal(drawn(1), moved)
    assert torch.equal(drawn(0), first)
    assert torch.equal(drawn(1), second)
    assert torch.equal(drawn(7000), moved)


@pytest.mark.trained
def test_a_trained_test_runs_at_the_chosen_seed():
    found = torch.rand(3)
    assert torch.equal(found, drawn(0)), "the fixture and the test have the same seed"
    assert torch.equal(found, torch.rand(3, generator=torch.Generator().manual_seed(1000 * trained.chosen_seed())))


def test_a_limit_holds_and_fails_by_the_value():
    trained.below(10, 9.9, mean=5, sd=1)
    trained.above(0, 0.1, mean=5, sd=1)
    with pytest.raises(AssertionError):
        trained.below(10, 10.1, mean=5, sd=1)
    with pytest.raises(AssertionError):
        trained.above(0, -0.1, mean=5, sd=1)


def test_a_limit_within_the_spread_is_refused():
    with pytest.raises(AssertionError, match=r"10 is within 5 deviations of 6 ± 1"):
        trained.below(10, 6, mean=6, sd=1)
    with pytest.raises(AssertionError, match=r"0 is within 5 deviations of 4 ± 1"):
        trained.above(0, 4, mean=4, sd=1)


def test_outcomes_are_noted_and_their_spread_is_shown(outcomes):
    for value in (4.0, 5.0, 6.0):
        trained.below(10, value, mean=5, sd=1)
    (line, *_) = map(json.loads, outcomes.read_text().splitlines())
    assert line["test"].endswith("test_outcomes_are_noted_and_their_spread_is_shown")
    assert (line["claim"], line["value"], line["mean"], line["sd"]) == ("< 10", 4.0, 5, 1)
    assert trained.spreads(outcomes).splitlines()[-1].endswith("| < 10 | 3 | 5 | 1 | 6 | 5.0 | 5 ± 1 |")

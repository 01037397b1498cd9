"""Step times that are kept."""

import json
from dataclasses import replace

import pytest

from vbdrop.experiments.cost import Costs
from vbdrop.experiments.step_times import KEPT_SECONDS, StepTimes


@pytest.fixture
def measured(monkeypatch):
    """Counts the measurements, each of which takes 2 seconds a step and 1 an example."""
    made = []
    monkeypatch.setattr("vbdrop.experiments.cost._measured", lambda config: (made.append(config), (2.0, 1.0))[1])
    return made


def test_a_kind_of_run_is_measured_once_on_a_machine(tmp_path, tiny, measured):
    path = tmp_path / "cache" / "times.json"
    seconds = Costs(times=StepTimes(path))(tiny("plain"))
    assert Costs(times=StepTimes(path))(tiny("plain", seed=3, epochs=6)) == pytest.approx(2 * seconds)
    assert len(measured) == 1
    others = [tiny("plain", units=13), tiny("vbd-weights"), replace(tiny("plain"), arithmetic="plain")]
    for other in others:
        Costs(times=StepTimes(path))(other)
    assert len(measured) == 1 + len(others)
    assert len(next(iter(json.loads(path.read_text()).values()))) == 1 + len(others)


def test_an_old_measurement_is_made_again(tmp_path, tiny, measured):
    path = tmp_path / "times.json"
    for now in (0.0, KEPT_SECONDS - 1, KEPT_SECONDS + 1):
        Costs(times=StepTimes(path, clock=lambda now=now: now))(tiny("plain"))
    assert len(measured) == 2


@pytest.mark.parametrize("content", ["{", "[]", "null", '{"a": 1}'])
def test_a_damaged_file_is_none(tmp_path, tiny, measured, content):
    path = tmp_path / "times.json"
    path.write_text(content)
    assert Costs(times=StepTimes(path))(tiny("plain")) > 0
    machine = StepTimes(path)._machine
    path.write_text(json.dumps({machine: content}))
    assert Costs(times=StepTimes(path))(tiny("plain")) > 0
    assert len(measured) == 2


def test_a_file_that_cannot_be_written_is_no_mistake(tmp_path, tiny, measured):
    (tmp_path / "file").touch()
    assert Costs(times=StepTimes(tmp_path / "file" / "times.json"))(tiny("plain")) > 0

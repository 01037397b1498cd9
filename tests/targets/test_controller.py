"""The controller, on plants that answer as networks do: late, by a factor, and with elements that die for good."""

import math
import random

import pytest

from vbdrop.targets.controller import Controller, Gains

UPDATES = 100


class Plant:
    """Elements with a log alpha that follows the pressure late; each has its own need of it."""

    def __init__(self, need: float, lag: float, noise: float = 0.0) -> None:
        self.need, self.lag, self.noise = need, lag, noise
        self.pushed = -8.0
        self.random = random.Random(0)

    def error(self, weight: float, share: float) -> float:
        """How far the element at this place of the path is from alpha = 1, after an update's time at this weight."""
        settled = math.log(weight / self.need)
        self.pushed += (settled - self.pushed) / (self.lag * UPDATES)
        return 4 * share - self.pushed + self.noise * self.random.gauss(0, 1)


@pytest.mark.parametrize("need", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("lag", [0.02, 0.1])
def test_it_finds_the_pressure_that_is_needed(need, lag):
    plant, controller = Plant(need, lag), Controller(start=0.01 * need)
    errors = [plant.error(controller.weight, i / UPDATES) for i in range(UPDATES) if controller.update(
        plant.error(controller.weight, i / UPDATES), 1 / UPDATES)]  # fmt: skip
    assert max(map(abs, errors[-20:])) < 1.5
    assert abs(math.log(controller.weight / need) - 4) < 2.0  # what the end of the path needs


def test_it_does_not_wind_up_while_nothing_answers():
    """A plant that is dead for a while: the weight rises at its full rate and no further, and comes down again."""
    controller = Controller(start=1.0)
    for _ in range(UPDATES):
        controller.update(error=1e9, elapsed=1 / UPDATES)
    highest = math.log(controller.weight)
    assert highest <= controller.gains.up
    for _ in range(UPDATES // 2):
        controller.update(error=-1e9, elapsed=1 / UPDATES)
    assert math.log(controller.weight) < highest - 0.45 * controller.gains.integral


def test_it_stays_within_its_bounds():
    controller = Controller(1.0, Gains(integral=1000.0, down=1.0, up=3.0))
    for _ in range(10):
        controller.update(-5.0, 0.1)
    assert controller.weight == pytest.approx(math.exp(-1.0))
    for _ in range(10):
        controller.update(5.0, 0.1)
    assert controller.weight == pytest.approx(math.exp(3.0))


def test_noise_moves_it_little():
    quiet, loud = Controller(0.01), Controller(0.01)
    calm, noisy = Plant(1.0, 0.05), Plant(1.0, 0.05, noise=0.3)
    for i in range(UPDATES):
        quiet.update(calm.error(quiet.weight, i / UPDATES), 1 / UPDATES)
        loud.update(noisy.error(loud.weight, i / UPDATES), 1 / UPDATES)
    assert abs(math.log(loud.weight / quiet.weight)) < 1.0


def test_its_state_goes_on_where_it_was():
    first = Controller(0.5)
    for error in (1.0, -2.0, 0.3):
        first.update(error, 0.01)
    second = Controller(9.0)
    second.load_state_dict(first.state_dict())
    assert [first.update(0.7, 0.01) for _ in range(3)] == [second.update(0.7, 0.01) for _ in range(3)]


@pytest.mark.parametrize("start", [0.0, -1.0, math.inf, math.nan])
def test_a_start_must_be_a_weight(start):
    with pytest.raises(ValueError, match="above 0"):
        Controller(start)

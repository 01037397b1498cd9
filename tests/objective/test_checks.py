import math

import pytest
import torch
from torch import nn

from vbdrop import Rates, Units, Weights, convert_, param_groups
from vbdrop.objective.checks import RateWatch, TrainingWatch, describe_non_finite, some


def converted(*modes) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    convert_(model, *(modes or [Weights()]))
    return model


def step(model: nn.Module, parameters) -> None:
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


@pytest.mark.parametrize(
    ("names", "text"),
    [(["a"], "'a'"), (["a", "b", "c"], "'a', 'b', 'c'"), (["a", "b", "c", "d"], "'a', 'b', 'c' and 1 more")],
)
def test_a_few_names_are_shown(names, text):
    assert some(names) == text


class TestRateWatch:
    @pytest.mark.parametrize("modes", [(Weights(),), (Rates(),), (Rates(per="layer"),), (Weights(), Units())])
    def test_rates_that_the_optimizer_has_are_fine(self, modes):
        model = converted(*modes)
        watch = RateWatch(model)
        step(model, param_groups(model))
        assert watch.resting() == []

    @pytest.mark.parametrize(
        ("modes", "resting"),
        [((Weights(),), ["0", "2"]), ((Units(),), ["0.gate", "2.gate"]), ((Rates(),), ["0", "2"])],
    )
    def test_rates_that_it_does_not_have_are_told_once(self, modes, resting):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        before = list(model.parameters())
        convert_(model, *modes)
        watch = RateWatch(model)
        step(model, before)
        assert watch.resting() == resting
        assert watch.resting() == []

    def test_those_of_one_layer_are_told_apart(self):
        model = converted()
        watch = RateWatch(model)
        step(model, [p for p in model.parameters() if p is not model[2].log_sigma2])
        assert watch.resting() == ["2"]

    def test_before_the_first_step_nothing_is_told_and_nothing_decided(self):
        model = converted()
        watch = RateWatch(model)
        assert watch.resting() == []
        assert watch.resting() == []
        step(model, [model[0].weight])
        assert watch.resting() == ["0", "2"]

    def test_rates_that_are_frozen_on_purpose_do_not_count(self):
        model = converted()
        model[0].log_sigma2.requires_grad_(False)
        watch = RateWatch(model)
        step(model, [model[0].weight, model[2].log_sigma2])
        assert watch.resting() == []

    def test_moves_that_cancel_in_the_sum_are_seen(self):
        layer = nn.Linear(2, 1)
        convert_(layer, Rates(per="unit"))
        watch = RateWatch(layer)
        with torch.no_grad():
            layer.weight.mul_(2)
            layer.log_alpha.add_(torch.tensor([0.125, -0.125]))
        assert watch.resting() == []

    def test_parameters_in_half_precision_are_seen(self):
        model = converted().bfloat16()
        watch = RateWatch(model)
        with torch.no_grad():
            model[0].weight.mul_(2)
        assert watch.resting() == ["0", "2"]


PARTS = {"nll": torch.tensor(math.nan), "kl": torch.tensor(3.0)}


class TestDescription:
    def test_it_names_the_parts_of_the_loss(self):
        text = describe_non_finite(converted(), PARTS)
        assert text == (
            "the loss is not finite (nll = nan, kl = 3.0). All parameters, gradients and KL terms are finite."
        )

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_it_names_the_parameter(self, value):
        model = converted(Weights(), Units())
        with torch.no_grad():
            model[2].weight[0, 0] = value
        assert "Not finite: '2.weight'" in describe_non_finite(model, PARTS)
        with torch.no_grad():
            model[2].weight[0, 0] = 1.0
            model[0].gate.log_sigma2[1] = value
        assert "Not finite: '0.gate.log_sigma2'" in describe_non_finite(model, PARTS)

    def test_it_names_the_gradient(self):
        model = converted()
        model[0].log_sigma2.grad = torch.full((4, 3), math.inf)
        assert "Not finite: 'the gradient of 0.log_sigma2'." in describe_non_finite(model, PARTS)

    def test_it_names_the_kl_of_finite_parameters(self):
        model = converted()
        with torch.no_grad():
            model[2].weight[0, 0] = 1e30  # its square is infinite
        assert "Not finite: 'the KL of 2'." in describe_non_finite(model, PARTS)


class TestTrainingWatch:
    @pytest.mark.parametrize("mode", [Weights(), Units()])
    def test_a_layer_in_which_everything_is_dead_is_told_once(self, mode):
        model = converted(mode)
        watch = TrainingWatch(model, 100)
        first = model[0].gate if mode == Units() else model[0]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 1e-3
            first.log_sigma2.fill_(8.0)
            first.log_sigma2.view(-1)[0] = -9.0
        assert list(watch.complaints(20.0, None)) == []
        with torch.no_grad():
            first.log_sigma2.fill_(8.0)
        (said,) = watch.complaints(20.0, None)
        assert said.startswith(f"everything in {'0.gate' if mode == Units() else '0'!r} is dead")
        assert "lower `kl_weight` (now 20)" in said
        assert "vbdrop.Warmup(hold=" in said
        assert list(watch.complaints(20.0, None)) == []
        with torch.no_grad():
            (model[2].gate if mode == Units() else model[2]).log_sigma2.fill_(9.0)
        (said,) = watch.complaints(20.0, None)
        assert "'2" in said
        assert "'0" not in said

    def test_rates_that_cannot_die_are_fine(self):
        model = converted(Rates())
        with torch.no_grad():
            model[0].log_alpha.fill_(50.0)
        assert list(TrainingWatch(model, 100).complaints(1.0, None)) == []

    @pytest.mark.parametrize(("n_train", "limit"), [(10, 1000), (32_000, 1000), (64_000, 2000)])
    def test_an_epoch_that_does_not_move_is_told_once(self, n_train, limit):
        watch = TrainingWatch(converted(), n_train)
        assert list(watch.complaints(1.0, (0.0, limit - 1))) == []
        (said,) = watch.complaints(1.0, (0.0, limit))
        assert said.startswith(f"`epoch` of the ELBO has not changed for {limit:,} calls")
        assert "kept the KL at 0 of its weight" in said
        assert "elbo.epoch = step / steps_per_epoch" in said
        assert list(watch.complaints(1.0, (0.0, 10 * limit))) == []

"""Losses and errors of classes and of numbers."""

import pytest
import torch
from torch import nn

from vbdrop.targets.batches import Batches
from vbdrop.targets.losses import are_classes, checked_loss, class_axis, default_loss, error_of, standard_error


def test_classes_have_a_cross_entropy_and_numbers_squares():
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    assert torch.equal(default_loss(logits, labels), nn.functional.cross_entropy(logits, labels))
    assert default_loss(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 0.0])).item() == 5.0
    with pytest.raises(TypeError, match="Pass loss="):
        default_loss((logits,), labels)


def test_the_error_counts_every_example_once():
    """Batches of unequal size: the mean over examples, not over batches."""
    x, y = torch.eye(5), torch.tensor([0, 1, 2, 0, 0])
    assert error_of(nn.Identity(), Batches((x, y), "valid", nn.Linear(5, 5), batch_size=4), default_loss) == 40.0
    numbers = Batches(
        (torch.ones(5, 1), torch.tensor([1.0, 1.0, 1.0, 1.0, 3.0])), "valid", nn.Linear(1, 1), batch_size=4
    )
    assert error_of(nn.Identity(), numbers, default_loss) == pytest.approx(0.8)


def test_the_mode_of_the_model_stays():
    model = nn.Sequential(nn.Dropout(0.9))
    batches = Batches((torch.eye(3), torch.arange(3)), "valid", nn.Linear(3, 3))
    assert error_of(model, batches, default_loss) == 0.0
    assert model.training


def test_ignored_targets_are_neither_right_nor_wrong():
    """As in the default loss: of the four that are judged, one is wrong."""
    x, y = torch.eye(6), torch.tensor([0, 1, 2, 0, -100, -100])
    batches = Batches((x, y), "valid", nn.Linear(6, 6), batch_size=4)
    assert error_of(nn.Identity(), batches, default_loss) == 25.0
    judged = Batches((x[:4], y[:4]), "valid", nn.Linear(6, 6))
    assert standard_error(25.0, nn.Identity(), batches) == standard_error(25.0, nn.Identity(), judged)


@pytest.mark.parametrize("steps", [3, 5])
def test_classes_may_be_on_the_last_axis_if_the_loss_has_them_there(steps):
    """With as many steps as classes the shapes do not tell; the loss does."""
    torch.manual_seed(0)
    y = torch.randint(3, (8, steps))
    right = nn.functional.one_hot(y, 3).float()
    batches = Batches((right, y), "valid", nn.Linear(3, 3))
    by_step = lambda outputs, targets: default_loss(outputs.flatten(0, 1), targets.flatten())  # noqa: E731
    assert error_of(nn.Identity(), batches, by_step) == 0.0
    assert error_of(nn.Identity(), Batches((right.mT, y), "valid", nn.Linear(3, 3)), default_loss) == 0.0


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (4, 2, 3)])
@pytest.mark.parametrize("axis", [1, -1])
def test_a_single_output_is_no_vector_of_classes(shape, axis):
    """The largest of one output is always the first: the loss says how good a single logit is."""
    targets = torch.ones(shape).long()
    outputs = torch.full(shape, 2.0).unsqueeze(axis)
    by_logit = lambda outputs, targets: nn.functional.binary_cross_entropy_with_logits(  # noqa: E731
        outputs.squeeze(axis), targets.float()
    )
    assert not are_classes(outputs, targets)
    assert class_axis(outputs, targets, by_logit) is None
    batches = Batches((outputs, targets), "valid", nn.Linear(1, 1))
    assert error_of(nn.Identity(), batches, by_logit) == pytest.approx(by_logit(outputs, targets).item())
    assert standard_error(3.0, nn.Identity(), batches) == 0.0


class Refuses(nn.Linear):
    def forward(self, x):
        if not self.training:
            raise RuntimeError("not in eval mode")
        return super().forward(x)


@pytest.mark.parametrize("measure", [error_of, lambda model, batches, loss: standard_error(10.0, model, batches)])
def test_every_module_keeps_its_mode_also_after_an_exception(measure):
    batches = Batches((torch.eye(3), torch.arange(3)), "valid", nn.Linear(3, 3))
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3).eval(), nn.Linear(3, 3))
    measure(model, batches, default_loss)
    assert [module.training for module in model.modules()] == [True, True, False, True]
    model[2] = Refuses(3, 3)
    with pytest.raises(RuntimeError, match="not in eval mode"):
        measure(model, batches, default_loss)
    assert [module.training for module in model.modules()] == [True, True, False, True]


@pytest.mark.parametrize("value", [3.0, torch.zeros(2), torch.tensor(1)])
def test_a_loss_is_one_number(value):
    batch = Batches((torch.eye(3), torch.arange(3)), "train", nn.Linear(3, 3)).example
    with pytest.raises(TypeError, match="one floating-point number"):
        checked_loss(lambda outputs, targets: value, nn.Identity(), batch)

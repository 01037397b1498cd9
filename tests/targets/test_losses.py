"""Losses and errors of classes and of numbers."""

import pytest
import torch
from torch import nn

from vbdrop.targets.batches import Batches
from vbdrop.targets.losses import checked_loss, default_loss, error_of


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


@pytest.mark.parametrize("value", [3.0, torch.zeros(2), torch.tensor(1)])
def test_a_loss_is_one_number(value):
    batch = Batches((torch.eye(3), torch.arange(3)), "train", nn.Linear(3, 3)).example
    with pytest.raises(TypeError, match="one floating-point number"):
        checked_loss(lambda outputs, targets: value, nn.Identity(), batch)

"""From a data set to inputs."""

from dataclasses import replace

import pytest
import torch

from vbdrop.data import hold_out, load
from vbdrop.experiments.inputs import examples, facts, fitted
from vbdrop.train import RecordError


def test_a_final_run_sees_all_training_data_and_the_test_data(tiny):
    config = replace(tiny(), n_train=None)
    train, test = examples(config)
    digits = load("digits")
    assert torch.equal(train.targets, digits.train_labels)
    assert torch.equal(test.targets, digits.test_labels)
    assert torch.equal(test.inputs, digits.test_images.float() / 255)


def test_a_trial_never_sees_the_test_data(tiny):
    train, test = examples(replace(tiny(), n_valid=1000, n_train=None))
    split = hold_out(load("digits"), 1000)
    assert (len(train.targets), len(test.targets)) == (7000, 1000)
    assert torch.equal(test.inputs, split.test_images.float() / 255)
    few, same = examples(replace(tiny(), n_valid=1000, n_train=300))
    assert torch.equal(few.inputs, train.inputs[:300])
    assert torch.equal(same.inputs, test.inputs)


def test_what_is_estimated_is_estimated_on_the_training_examples(tiny):
    train, _ = examples(replace(tiny(), normalise="centred", n_train=500))
    assert train.inputs.mean(0).abs().max() < 1e-6


def test_grey_images_fit_a_colour_network():
    images = torch.randint(256, (3, 1, 28, 28), dtype=torch.uint8)
    colour = fitted(images, (3, 32, 32))
    assert torch.equal(colour[:, 1, 2:30, 2:30], images[:, 0])
    assert colour.sum() == 3 * images.sum()
    assert fitted(images, (1, 28, 28)) is images
    with pytest.raises(ValueError, match=r"shape \(3, 32, 32\) do not fit a network that takes \(1, 28, 28\)"):
        fitted(colour, (1, 28, 28))


def test_other_data_and_too_few_are_errors(tiny):
    with pytest.raises(RecordError, match="needs the data set digits with the checksum 00; got"):
        examples(replace(tiny(), checksum="00"))
    with pytest.raises(ValueError, match="`n_train` must be at most the 8000 training examples of digits; got 8001"):
        examples(replace(tiny(), n_train=8001))
    assert facts("digits").checksum == load("digits").checksum

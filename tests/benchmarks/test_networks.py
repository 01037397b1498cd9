import pytest
import torch
from benchmarks.networks import NETWORKS, examples, network


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("784-300-100-10", 266_200),
        ("3x1060", 3_088_840),
        ("LeNet-5", 430_500),
        ("VGG block", 202_432),
        ("2x64", 54_912),
    ],
)
def test_a_network_has_the_weights_that_its_name_says_and_takes_its_examples(name, weights):
    model = network(name)
    assert sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1) == weights
    images, labels = examples(name, 2)
    with torch.no_grad():
        assert model(images).shape == (2, 10)
    assert labels.shape == (2,)


@pytest.mark.parametrize("name", ["2x", "0x5", "lenet", "2x5x", ""])
def test_another_name_is_refused(name):
    with pytest.raises(ValueError, match=r"a network must be one of 784-300-100-10, .* or such as '2x512'; got"):
        network(name)


def test_the_table_has_what_is_published():
    assert list(NETWORKS) == ["784-300-100-10", "3x1060", "LeNet-5", "VGG block"]

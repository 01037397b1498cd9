"""Pictures against the weights that they show."""

import base64

import numpy as np
import pytest
import torch
from torch import nn

from vbdrop.experiments.pictures import FILTERS, MASK_PIXELS, UNITS, first_layer, masks
from vbdrop.models import VGG, LeNet5, lenet_300_100


def pixels(picture, kind=np.uint8):
    return np.frombuffer(base64.b64decode(picture["values"]), kind).reshape(picture["rows"], picture["columns"])


def test_the_largest_units_are_shown_as_the_image_sees_them():
    network = nn.Sequential(nn.Flatten(), nn.Linear(2 * 6, 20))
    with torch.no_grad():
        network[1].weight.zero_()
        network[1].weight[4, 1] = -2.0  # channel 0, row 0, column 1
        network[1].weight[4, 6 + 5] = 1.0  # channel 1, row 1, column 2
        network[1].weight[17, 0] = 0.5
    found = first_layer(network, (2, 2, 3))
    assert (found["name"], found["outputs"], len(found["units"])) == ("1", 20, 2)
    first = pixels(found["units"][0], np.int8) * found["units"][0]["scale"]
    assert first == pytest.approx(np.array([[0, -2, 0], [0, 0, 1]]), abs=2 / 127)
    assert (pixels(found["reads"]) > 0).tolist() == [[True, True, False], [False, False, True]]
    assert pixels(found["reads"]).max() == 255


def test_filters_of_a_convolution():
    found = first_layer(LeNet5(), (1, 28, 28))
    assert len(found["filters"]) == 20 <= FILTERS
    assert pixels(found["filters"][0], np.int8).shape == (5, 5)


@pytest.mark.parametrize("network", [nn.Sequential(nn.Linear(5, 2)), nn.Sequential(nn.ReLU()), nn.Conv1d(3, 2, 2)])
def test_a_first_layer_that_reads_no_image_has_no_picture(network):
    assert first_layer(network, (1, 28, 28)) is None


def test_a_network_with_nothing_left_has_empty_pictures():
    network = lenet_300_100()
    with torch.no_grad():
        network.hidden[0].weight.zero_()
    found = first_layer(network, (1, 28, 28))
    assert found["units"] == []
    assert pixels(found["reads"]).max() == 0


def test_masks_show_every_block_that_has_a_weight():
    network = lenet_300_100()
    with torch.no_grad():
        network.hidden[0].weight.zero_()[299, 783] = 1e-3
    first, second, last = masks(network)
    assert [(each["outputs"], each["inputs"]) for each in (first, second, last)] == [(300, 784), (100, 300), (10, 100)]
    assert np.argwhere(pixels(first)).tolist() == [[first["rows"] - 1, first["columns"] - 1]]
    assert pixels(second).min() == 255
    assert (last["rows"], last["columns"]) == (10, first["columns"])


def test_a_deep_network_takes_no_more_room():
    found = masks(VGG())
    assert sum(each["rows"] * each["columns"] for each in found) <= MASK_PIXELS
    assert len(first_layer(lenet_300_100(), (1, 28, 28))["units"]) == UNITS

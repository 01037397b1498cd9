import pytest
from torch import nn

from vbdrop.layers.companions import companion, weight_names


@pytest.mark.parametrize(
    ("weight", "kind", "name"),
    [
        ("weight", "log_sigma2", "log_sigma2"),
        ("block.0.weight", "gate", "block.0.gate"),
        ("weight_hh_l1_reverse", "removed", "removed_hh_l1_reverse"),
        ("weights.weight_ih_l0", "bias", "weights.bias_ih_l0"),
    ],
)
def test_a_companion_has_the_name_of_its_weight_with_another_word(weight, kind, name):
    assert companion(weight, kind) == name


def test_the_weights_of_a_layer_are_its_matrices():
    assert weight_names(nn.Linear(2, 3)) == ("weight",)
    assert weight_names(nn.LSTM(2, 3, proj_size=1)) == ("weight_ih_l0", "weight_hh_l0", "weight_hr_l0")

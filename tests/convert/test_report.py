from torch import nn

from vbdrop import Units, Weights, convert_
from vbdrop.convert import Conversion


def test_it_reads_well():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
    assert str(convert_(model, Weights(), Units())).splitlines() == [
        "converted 2, left 1",
        "  0  Weights",
        "  3  Weights, Units",
        "  1  left: no noisy layer for BatchNorm2d",
    ]


def test_the_model_itself_has_a_name():
    assert str(convert_(nn.Linear(2, 2), Weights())) == "converted 1, left 0\n  the model  Weights"


def test_the_columns_stand_below_each_other():
    model = nn.Sequential(nn.Linear(2, 2))
    model.scale = nn.Parameter(model[0].bias.detach().clone())
    assert str(convert_(model, Weights())).splitlines()[1:] == [
        "  0          Weights",
        "  the model  left: no noisy layer for Sequential",
    ]


def test_what_one_mode_converts_is_not_left_whatever_the_order():
    one, other = Conversion(), Conversion()
    one.add("Weights", ["a"], {"b": "no"})
    one.add("Units", ["b"], {"a": "no", "c": "never"})
    other.add("Units", ["b"], {"a": "no", "c": "never"})
    other.add("Weights", ["a"], {"b": "no", "c": "never"})
    assert one.converted == other.converted == {"a": "Weights", "b": "Units"}
    assert one.left == other.left == {"c": "never"}

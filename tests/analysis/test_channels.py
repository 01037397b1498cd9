import torch

from vbdrop.analysis.channels import Channels, UnitSets


def test_ties_are_transitive_and_take_no_order():
    units = UnitSets()
    a, b, c, d = (units.new(2) for _ in range(4))
    units.tie(a, b)
    units.tie(d, c)
    units.tie(c, a)
    assert units.roots().tolist() == [0, 1] * 4


def test_a_unit_can_be_tied_to_itself():
    units = UnitSets()
    a = units.new(3)
    units.tie(a, a)
    units.tie(a[:1], a[1:2])
    assert units.roots().tolist() == [0, 0, 2]


def test_what_is_not_known_has_the_value_zero():
    channels = Channels.varying(1, torch.arange(3))
    known = torch.tensor([True, False, True])
    changed = channels.with_values(known, torch.tensor([1.0, float("nan"), 3.0]))
    assert changed.value.tolist() == [1, 0, 3]
    assert not channels.known.any()


def test_taking_channels_takes_what_is_known_of_them():
    channels = Channels.varying(1, torch.tensor([4, 5])).with_values(
        torch.tensor([False, True]), torch.tensor([0.0, 7.0])
    )
    taken = channels.take(torch.tensor([1, 1, 0]), axis=3)
    assert (taken.axis, len(taken)) == (3, 3)
    assert taken.units.tolist() == [5, 5, 4]
    assert taken.value.tolist() == [7, 7, 0]
    assert taken.known.tolist() == [True, True, False]

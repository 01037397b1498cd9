import torch

from vbdrop.compression.planning.plan import Merge
from vbdrop.compression.rewriting.slicing import cut, merged, uncut


def test_cuts_on_both_axes():
    tensor = torch.randn(4, 3, 2)
    assert torch.equal(cut(tensor, {0: [1, 3], 1: [0]}), tensor[[1, 3]][:, [0]])
    assert cut(tensor, {}) is tensor


def test_what_was_cut_comes_back_with_zeros():
    tensor, axes = torch.randn(4, 3, 2), {0: [1, 3], 1: [0, 2]}
    back = uncut(cut(tensor, axes), axes, tensor.shape)
    assert torch.equal(cut(back, axes), cut(tensor, axes))
    assert torch.count_nonzero(back) == 2 * 2 * 2
    assert back.shape == tensor.shape


def test_weights_are_merged_on_either_axis_and_for_some_rows():
    weight = torch.randn(4, 3, 5)
    result = merged(weight, [Merge(1, 2, [0, 1], [0.5, -2.0], (1, 3))])
    expected = weight.double().clone()
    expected[1:3, 2] += 0.5 * weight[1:3, 0] - 2 * weight[1:3, 1]
    torch.testing.assert_close(result, expected)
    transposed = merged(weight.transpose(0, 1), [Merge(0, 2, [0, 1], [0.5, -2.0], (1, 3))])
    torch.testing.assert_close(transposed, expected.transpose(0, 1))


def test_the_weight_itself_stays():
    weight = torch.ones(2, 2, dtype=torch.float64)
    merged(weight, [Merge(1, 0, [1], [1.0], (0, 2))])
    assert torch.equal(weight, torch.ones(2, 2).double())

import numpy as np
import pytest
import torch

from vbdrop.exporting.c_builder import Builder, Call, Variable
from vbdrop.exporting.c_program import Buffer, Constant, Gather
from vbdrop.exporting.errors import ExportError


def source_of(builder: Builder, *shape: int) -> Variable:
    return builder.result(shape)


def test_positions_that_do_not_move_need_no_operation():
    builder = Builder()
    source = source_of(builder, 2, 3)
    seen = builder.gather("view", source, torch.arange(6).reshape(6))
    assert seen == Variable(source.buffer, (6,))
    assert builder.operations == []


@pytest.mark.parametrize(
    ("positions", "block", "starts"),
    [
        ([3, 4, 5, 9, 10, 11], 3, [3, 9]),
        ([0, 1, 2, 3], 4, [0]),
        ([5, 1, 3], 1, [5, 1, 3]),
        ([0, 1, 4, 5, 6, 7], 2, [0, 4, 6]),
        ([2, 2, 2], 1, [2, 2, 2]),
        ([], 1, []),
    ],
)
def test_a_selection_is_copied_in_the_longest_blocks(positions, block, starts):
    builder = Builder()
    builder.gather("select", source_of(builder, 12), torch.tensor(positions, dtype=torch.long))
    (gather,) = builder.operations
    assert isinstance(gather, Gather)
    assert gather.block == block
    assert gather.starts.tolist() == starts
    assert gather.target.size == len(positions)


def test_a_constant_gets_a_buffer():
    builder = Builder()
    variable = builder.variable("ones", torch.ones(1, 2, 2))
    assert variable.shape == (2, 2)
    (constant,) = builder.operations
    assert isinstance(constant, Constant)
    assert constant.values.tolist() == [1.0] * 4


@pytest.mark.parametrize("shape", [(), (3, 2)])
def test_a_constant_without_a_batch_of_one_is_refused(shape):
    with pytest.raises(ExportError, match=r"the constant `ones`: its first axis must be the batch.*its shape is"):
        Builder().variable("ones", torch.ones(shape))


def call(**arguments) -> Call:
    return Call("conv2d", "conv2d_3", arguments, (4,))


def test_an_argument_must_be_what_it_has_to_be():
    variable = Variable(Buffer(1, 4), (4,))
    with pytest.raises(ExportError, match=r"aten\.conv2d` \(node `conv2d_3`\).*`weight` depends on the model's input"):
        call(weight=variable).constant("weight")
    with pytest.raises(ExportError, match="`input` does not depend"):
        call(input=torch.ones(4)).variable("input")
    with pytest.raises(ExportError, match="`weight` has values that are not finite"):
        call(weight=torch.tensor([torch.inf])).constant("weight")


def test_an_argument_that_is_left_out_has_its_default():
    assert call(bias=None).constant_or(0.0, "bias", 3).tolist() == [0, 0, 0]
    assert call(bias=torch.tensor([2.0])).constant_or(0.0, "bias", 2).tolist() == [2, 2]


def test_pairs_along_one_axis_are_neutral_along_the_other():
    one = Call("conv1d", "conv1d", {"stride": [2], "padding": [3], "dilation": 4}, (4,))
    assert [one.pair(name) for name in ("stride", "padding", "dilation")] == [(1, 2), (0, 3), (1, 4)]
    two = call(stride=[2, 5], padding=[3])
    assert [two.pair("stride"), two.pair("padding")] == [(2, 5), (3, 3)]


def test_buffers_are_told_apart():
    builder = Builder()
    assert len({builder.buffer(4) for _ in range(3)}) == 3
    assert np.prod(source_of(builder, 3, 4).shape) == 12

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from vbdrop.analysis.packed_sequences import padded_sequences

LENGTHS = torch.tensor([2, 4, 1])


@pytest.mark.parametrize("batch_first", [True, False])
def test_packed_sequences_stay_padded_inside_the_block_alone(batch_first):
    layer = nn.LSTM(2, 3, batch_first=batch_first)
    x = torch.randn(3, 4, 2) if batch_first else torch.randn(4, 3, 2)

    def run():
        packed = pack_padded_sequence(x, LENGTHS, batch_first=batch_first, enforce_sorted=False)
        output, (last, _) = layer(packed)
        assert isinstance(output, PackedSequence)
        return pad_packed_sequence(output, batch_first=batch_first)[0], last

    expected, last = run()
    with padded_sequences(layer) as packs:
        padded, _ = run()
        whole, _ = layer(x)
    assert [lengths.tolist() for lengths in packs] == [[4, 2, 1]]  # as torch sorts them
    steps = (slice(None), slice(min(LENGTHS))) if batch_first else slice(min(LENGTHS))
    torch.testing.assert_close(padded[steps], whole[steps])
    assert int(padded.count_nonzero()) == whole[steps].numel()  # where any sequence may end, there is padding
    again, last_again = run()
    assert torch.equal(again, expected)
    assert torch.equal(last_again, last)
    assert "forward" not in vars(layer)


def test_an_error_inside_the_block_leaves_torch_as_it_was():
    layer = nn.GRU(2, 3)
    with pytest.raises(KeyError), padded_sequences(layer):
        raise KeyError("inside")
    assert "forward" not in vars(layer)
    packed = pack_padded_sequence(torch.randn(4, 3, 2), LENGTHS, enforce_sorted=False)
    assert packed.data.shape == (7, 2)


def test_without_packing_nothing_is_noted():
    with padded_sequences(nn.GRU(2, 3)) as packs:
        nn.GRU(2, 3)(torch.zeros(4, 1, 2))
    assert packs == []

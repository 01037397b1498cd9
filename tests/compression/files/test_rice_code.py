import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.rice_code import decode_positions, encode_positions, position_blocks


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
@given(st.sets(st.integers(0, 2**30), max_size=60), st.integers(0, 9))
def test_positions_come_back(positions, shift):
    wanted = np.array(sorted(position >> 3 * shift for position in positions), dtype=np.int64)
    wanted = np.unique(wanted)
    found = decode_positions(encode_positions(wanted), len(wanted), 2**31)
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("density", [0.002, 0.013, 0.04, 0.12, 0.5])
def test_a_position_costs_about_what_its_entropy_is(density):
    size = 200_000
    positions = np.flatnonzero(np.random.default_rng(0).random(size) < density)
    entropy = -(density * math.log2(density) + (1 - density) * math.log2(1 - density)) * size / 8
    assert len(encode_positions(positions)) < 1.03 * entropy + 1


def test_dense_positions_are_a_bitmask():
    kept = np.array([0, 1, 2, 4, 6, 7, 8, 9])
    code = encode_positions(kept)
    assert code[0] == 0
    assert np.flatnonzero(np.unpackbits(code[1:])).tolist() == kept.tolist()


def test_positions_at_the_very_end():
    assert decode_positions(encode_positions(np.array([2**31 - 1])), 1, 2**31).tolist() == [2**31 - 1]
    assert encode_positions(np.zeros(0, np.int64)).tolist() == [0]
    assert decode_positions(np.array([0], np.uint8), 0, 5).tolist() == []


CODE = encode_positions(np.array([3, 70, 500, 501, 2000]))


@pytest.mark.parametrize(
    ("data", "count", "size"),
    [
        (CODE, 5, 2000),
        (CODE, 4, 2001),
        (CODE, 6, 2001),
        (CODE, -1, 2001),
        (CODE, 10**12, 2001),
        (CODE[:-1], 5, 2001),
        (CODE[:1], 5, 2001),
        (CODE[:0], 0, 2001),
        (np.append(CODE, np.uint8(0)), 5, 2001),
        (np.append(np.uint8(32), CODE[1:]), 5, 2001),
        (np.append(np.uint8(255), CODE[1:]), 5, 2001),
    ],
)
def test_what_is_no_such_code_is_refused(data, count, size):
    assert decode_positions(CODE, 5, 2001).tolist() == [3, 70, 500, 501, 2000]
    with pytest.raises(FileFormatError):
        decode_positions(data, count, size)


@given(st.binary(max_size=40), st.integers(0, 50), st.integers(0, 10**6))
def test_any_bytes_give_valid_positions_or_an_error(data, count, size):
    try:
        found = decode_positions(np.frombuffer(data, np.uint8), count, size)
    except FileFormatError:
        return
    assert len(found) == count
    assert all(np.diff(found) > 0)
    assert count == 0 or (found[0] >= 0 and found[-1] < size)


@pytest.mark.parametrize("density", [0.001, 0.03, 0.9])
def test_many_positions_are_read_block_by_block(density):
    positions = np.flatnonzero(np.random.default_rng(0).random(400_000) < density)
    positions = positions[positions % 100_000 < 40_000]  # and long gaps, blocks without any
    code = encode_positions(positions)
    wanted = positions
    blocks = list(position_blocks(code, len(wanted), 400_000))
    assert np.concatenate(blocks).tolist() == wanted.tolist()
    assert max(map(len, blocks)) <= 8 * 2048
    with pytest.raises(FileFormatError, match="must be below"):
        list(position_blocks(code, len(wanted), int(wanted[-1])))
    for count in (len(wanted) - 1, len(wanted) + 1):
        with pytest.raises(FileFormatError):
            list(position_blocks(code, count, 400_000))

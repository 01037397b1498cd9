"""Sorted positions in few bytes: the gaps between them in Rice code.

A gap g is split into its r low bits and the rest, q = g >> r. The low bits of all gaps come first, packed; then every q
as q zeros and a one. The first byte is r, chosen for the fewest bytes; this comes within a tenth of a bit per position
of the entropy of random positions. With r = 0 the code is a bitmask.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vbdrop.compression.files.format import FileFormatError

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]

MAX_LOW_BITS = 31

BLOCK_BYTES = 2048
"""How much of the unary part is read at a time."""


def encode_positions(positions: Positions) -> Bytes:
    """Write strictly increasing positions, zero or larger, as bytes.

    Example:
        >>> encode_positions(np.array([0, 1, 3])).tolist()  # 0 low bits, then the mask 1101
        [0, 208]
    """
    gaps = np.diff(positions, prepend=-1) - 1
    low_bits = min(range(MAX_LOW_BITS + 1), key=lambda bits: _size(gaps, bits))
    low = (gaps[:, None] >> np.arange(low_bits)[::-1]) & 1
    high = gaps >> low_bits
    ones = np.cumsum(high + 1) - 1
    unary = np.zeros(ones[-1] + 1 if len(ones) else 0, dtype=np.uint8)
    unary[ones] = 1
    return np.concatenate([np.array([low_bits], np.uint8), np.packbits(low.astype(np.uint8)), np.packbits(unary)])


def decode_positions(data: Bytes, count: int, size: int) -> Positions:
    """Read what `encode_positions` wrote.

    Args:
        data: The bytes.
        count: The number of positions.
        size: All positions must be below this.

    Raises:
        FileFormatError: If the bytes are not such a code, or hold other positions.

    Example:
        >>> decode_positions(np.array([0, 208], np.uint8), count=3, size=4).tolist()
        [0, 1, 3]
    """
    blocks = list(position_blocks(data, count, size))
    return np.concatenate(blocks) if blocks else np.zeros(0, np.int64)


def position_blocks(data: Bytes, count: int, size: int) -> Iterator[Positions]:
    """Read what `encode_positions` wrote, a few thousand at a time: all at once would use many times the memory.

    Args:
        data: The bytes.
        count: The number of positions.
        size: All positions must be below this.

    Raises:
        FileFormatError: If the bytes are not such a code, or hold other positions; earlier blocks were already yielded.
    """
    if len(data) == 0 or data[0] > MAX_LOW_BITS or not 0 <= count <= 8 * len(data):
        raise FileFormatError(f"{count} positions in {len(data)} bytes cannot be read.")
    low_bits = int(data[0])
    split = 1 + -(-count * low_bits // 8)
    if split > len(data):
        raise FileFormatError(f"{count} positions in {len(data)} bytes cannot be read.")
    weights = 1 << np.arange(low_bits, dtype=np.int64)[::-1]
    found, last_one, last = 0, -1, -1
    for start in range(split, len(data), BLOCK_BYTES):
        ones = np.flatnonzero(np.unpackbits(data[start : start + BLOCK_BYTES])) + 8 * (start - split)
        if len(ones) == 0:
            continue
        begin, end = found * low_bits, (found + len(ones)) * low_bits
        found += len(ones)
        if found > count:
            break
        packed = np.unpackbits(data[1 + begin // 8 : 1 + -(-end // 8)])[begin % 8 :][: end - begin]
        low = packed.reshape(len(ones), low_bits) @ weights
        high = np.diff(ones, prepend=last_one) - 1
        before, last_one = last, int(ones[-1])
        # with Python integers, which do not overflow
        last = before + (int(high.sum()) << low_bits) + int(low.sum()) + len(ones)
        if last >= size:
            raise FileFormatError(f"a position is {last}, where it must be below {size}.")
        yield before + np.cumsum((high << low_bits) + low + 1)
    if found != count or len(data) - split != -(-(last_one + 1) // 8):
        raise FileFormatError(f"the bytes of {count} positions hold {found}.")


def _size(gaps: Positions, low_bits: int) -> int:
    """The bytes of the two parts with this many low bits."""
    return -(-len(gaps) * low_bits // 8) + -(-(len(gaps) + int((gaps >> low_bits).sum())) // 8)

import pickle
import pickletools
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vbdrop.data import DataError
from vbdrop.data.pickles import read_pickle


def reader(tmp_path, content: bytes):
    path = tmp_path / "batch"
    path.write_bytes(content)
    return read_pickle(path)


def test_a_python_2_batch_is_read(tmp_path, cifar_batch, colour_arrays):
    batch = reader(tmp_path, cifar_batch)
    np.testing.assert_array_equal(batch[b"data"].reshape(-1, 3, 32, 32), colour_arrays.test_images)
    assert batch[b"labels"] == colour_arrays.test_labels.tolist()
    assert batch[b"batch_label"] == b"testing"
    assert batch[b"filenames"][10] == b"cat_10.png"
    assert batch[b"data"].flags.writeable


def test_numpy_reads_the_same_from_the_sample(cifar_batch, colour_arrays):
    """So the sample of these tests is a real pickle of a real array."""
    name = "numpy.core.multiarray"
    batch = pickle.loads(cifar_batch.replace(name.encode(), b"numpy._core.multiarray"), encoding="bytes")
    np.testing.assert_array_equal(batch[b"data"].reshape(-1, 3, 32, 32), colour_arrays.test_images)


def test_a_hostile_pickle_is_refused_and_does_nothing(tmp_path, hostile_pickle):
    trace = tmp_path / "created"
    content = hostile_pickle(trace)
    with pytest.raises(DataError, match="is refused: it is not a pickle of plain arrays"):
        reader(tmp_path, content)
    assert not trace.exists()
    pickle.loads(content)[b"data"].close()
    assert trace.exists(), "the pickle of this test would not have done anything"


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02}(U\x04datacnumpy\nload\nU\x01x\x85Ru.",
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\nfromfile\nU\x01x\x85Ru.",
        b"\x80\x02cbuiltins\neval\nU\x011\x85R.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02U\x01xQ.",
    ],
    ids=["global", "inst", "stack-global", "numpy.load", "fromfile", "eval", "extension", "persistent-id"],
)
def test_whatever_could_call_something_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="is refused"):
        reader(tmp_path, content)


@pytest.mark.parametrize("place", [1 << 20, (1 << 32) - 1])
def test_a_place_in_memory_far_away_is_refused(tmp_path, place):
    """Python's reader would allocate 64 GB for the second."""
    with pytest.raises(DataError, match=f"is refused: .* LONG_BINPUT {place}"):
        reader(tmp_path, b"\x80\x02}r" + struct.pack("<I", place) + b".")


def test_an_array_of_objects_is_refused(tmp_path, cifar_batch):
    with pytest.raises(DataError, match="holds an array that is not of bytes"):
        reader(tmp_path, cifar_batch.replace(b"U\x02u1", b"U\x02O8"))


def test_an_array_of_another_size_than_it_says_is_refused(tmp_path, cifar_batch):
    shape = b"K\x0b" + b"M" + struct.pack("<H", 3072)
    assert cifar_batch.count(shape) == 1
    with pytest.raises(DataError, match="or not of the stated size"):
        reader(tmp_path, cifar_batch.replace(shape, b"K\x0c" + shape[2:]))


@pytest.mark.parametrize("content", [b"", b"\x80\x02", b"<html>", b"\x80\x02}(U\x04data", b"."])
def test_a_damaged_pickle_is_an_error(tmp_path, content):
    with pytest.raises(DataError, match=r"is damaged|is refused"):
        reader(tmp_path, content)


def test_something_else_than_a_dict_is_an_error(tmp_path):
    with pytest.raises(DataError, match="must hold a dict; got list"):
        reader(tmp_path, b"\x80\x02].")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*nowhere"):
        read_pickle(tmp_path / "nowhere")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_gives_a_dict_or_a_clear_error(tmp_path, cifar_batch, data):
    """Bytes outside the images are changed: 11 images leave about 400 bytes that steer the reader."""
    steering = [
        place
        for _, argument, position in pickletools.genops(cifar_batch)
        if not (isinstance(argument, str) and len(argument) > 1000)
        for place in (position, position + 1, position + 2)
    ]
    content = bytearray(cifar_batch)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.sampled_from(steering)) % len(content)] = data.draw(st.integers(0, 255))
    with suppress(DataError):
        assert isinstance(reader(tmp_path, bytes(content)), dict)

import json

import pytest
import torch
from safetensors.torch import save as to_safetensors

from vbdrop.compression.files.container import HEADER_LIMIT, checksum, read_container
from vbdrop.compression.files.format import FileFormatError

HEADER = {"version": 1, "class": "Net", "plan": {}, "lists": [[1, 2]], "tied": {"a": "b"}}
TENSORS = {
    "b": torch.randn(3, 2),
    "at": torch.tensor([1, 2], dtype=torch.uint8),
    "n": torch.tensor(3),
    "e": torch.zeros(0, 4),
}


def write(path, header=None, tensors=TENSORS, **changes):
    header = {**HEADER, **changes} if header is None else header
    if isinstance(header, dict) and "sum" not in header:
        header = {**header, "sum": checksum(header, tensors)}
    text = header if isinstance(header, str) else json.dumps(header)
    path.write_bytes(to_safetensors(tensors, {"vbdrop": text}))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


def test_what_was_written_is_read(path):
    header, tensors = read_container(write(path))
    assert header == {**HEADER, "arguments": None, "dtype": None, "uncast": []}
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())


def test_the_checksum_covers_names_types_shapes_values_and_header():
    base = checksum(HEADER, TENSORS)
    moved = {("c" if name == "b" else name): value for name, value in TENSORS.items()}
    assert len({base, checksum({**HEADER, "class": "Other"}, TENSORS), checksum(HEADER, moved)}) == 3
    for name, value in {"b": TENSORS["b"].reshape(2, 3), "n": torch.tensor(4), "e": torch.zeros(0, 5)}.items():
        assert checksum(HEADER, {**TENSORS, name: value}) != base
    same_bytes = {**TENSORS, "at": TENSORS["at"].view(torch.int8)}
    assert checksum(HEADER, same_bytes) != base


def test_every_damaged_byte_is_seen(path):
    content = bytearray(write(path).read_bytes())
    for place in range(0, len(content), 7):
        damaged = content.copy()
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            read_container(path)


def test_every_length_but_the_whole_is_seen(path):
    content = write(path).read_bytes()
    for length in [*range(0, 20), *range(20, len(content), 11), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            read_container(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(FileFormatError):
        read_container(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({**HEADER, "version": 2}, "has version 2; this vbdrop reads up to 1: update it"),
        ({**HEADER, "version": "1"}, "must have a version, 1 or later; got '1'"),
        ({**HEADER, "version": True}, "must have a version"),
        ({**HEADER, "version": 0}, "must have a version"),
        ({**HEADER, "class": 3}, "'class' must be a str in the header; got 3"),
        ({**HEADER, "plan": None}, "'plan' must be a dict"),
        ({**HEADER, "tied": {"a": 1}}, "'tied' must have names"),
        ({**HEADER, "tied": []}, "'tied' must be a dict"),
        ({**HEADER, "arguments": 1}, "'arguments' must be a dict"),
        ({**HEADER, "lists": [[1, -2]]}, "'lists' must have pairs of numbers"),
        ({**HEADER, "lists": [[1, 2.0]]}, "'lists' must have pairs of numbers"),
        ({**HEADER, "sum": "0" * 16}, "its checksum does not match its content"),
        ({"version": 1}, "'class' must be a str"),
        ([], "must have a version"),
        ("{", "is not JSON"),
        ("[" * 10_000, "is not JSON"),
        ("1" * 5_000, "is not JSON"),
        ("[" * 300 + "]" * 300, "nested at most 64 deep"),
        ("[" * 100_000, "would take about 20,0"),
        ("[" + "{}," * 100_000 + "{}]", "would take about 26,0"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_header_is_named(path, header, message):
    with pytest.raises(FileFormatError, match=message):
        read_container(write(path, header))


def test_other_files_are_named(path):
    path.write_bytes(to_safetensors(TENSORS))
    with pytest.raises(
        FileFormatError, match=r"net\.safetensors must be a safetensors file with the metadata 'vbdrop'"
    ):
        read_container(path)
    path.write_bytes(b"PK\x03\x04 a zip file of some kind")
    with pytest.raises(FileFormatError, match="not a safetensors file"):
        read_container(path)
    path.write_bytes((HEADER_LIMIT + 1).to_bytes(8, "little") + b" " * (HEADER_LIMIT + 1))
    with pytest.raises(FileFormatError, match="not a safetensors file"):
        read_container(path)
    with pytest.raises(FileNotFoundError):
        read_container(path.with_name("missing"))

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.sparse_tensors import ENTRY_BYTES, from_stored, to_stored


def masked(*shape: int, share: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator) * (torch.rand(shape, generator=generator) < share)


def size_of(tensors: dict[str, torch.Tensor]) -> int:
    return sum(value.numel() * value.element_size() + ENTRY_BYTES for value in tensors.values())


@given(st.floats(0, 1), st.integers(1, 40), st.integers(0, 40))
def test_tensors_come_back_exactly_in_the_smaller_form(share, rows, columns):
    state = {"weight": masked(rows, columns, share=share), "steps": torch.tensor(7)}
    tensors, tied = to_stored(state)
    assert size_of(tensors) <= size_of(state)
    found = from_stored(tensors, tied, {name: torch.empty_like(value) for name, value in state.items()})
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_many_zeros_are_not_stored():
    tensors, _ = to_stored({"a": masked(100, 100, share=0.02), "b": masked(100, 100, share=0.98)})
    assert set(tensors) == {"a", "a:at", "b"}
    assert tensors["a"].numel() == int((masked(100, 100, share=0.02) != 0).sum())
    assert tensors["b"].shape == (100, 100)


def test_a_name_that_must_stay_dense_does():
    tensors, _ = to_stored({"a": torch.zeros(1000)}, dense={"a"})
    assert tensors["a"].shape == (1000,)


def test_half_precision_halves_what_fits_into_it():
    state = {"weight": masked(30, 30, share=0.5), "large": torch.tensor([1e6, 1.0]), "count": torch.tensor([3])}
    tensors, _ = to_stored(state, torch.float16)
    assert [tensors[name].dtype for name in state] == [torch.float16, torch.float32, torch.int64]
    found = from_stored(tensors, {}, state)
    assert found["weight"].dtype == torch.float32
    assert torch.equal(found["weight"], state["weight"].half().float())
    assert torch.equal(found["large"], state["large"])


def test_a_shared_tensor_is_stored_once():
    shared = torch.randn(4, 4)
    state = {"a": shared, "b": shared, "transposed": shared.T, "part": shared[0]}
    tensors, tied = to_stored(state)
    assert tied == {"b": "a"}
    assert set(tensors) == {"a", "transposed", "part"}
    found = from_stored(tensors, tied, state)
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_two_tensors_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two tensors named 'a:at'"):
        to_stored({"a": torch.zeros(1000), "a:at": torch.zeros(2)})


LIKE = {"w": torch.zeros(2, 3)}
BYTES = torch.tensor([0, 208], dtype=torch.uint8)  # the positions 0, 1 and 3


@pytest.mark.parametrize(
    ("tensors", "tied", "message"),
    [
        ({}, {}, "no tensor 'w'"),
        ({"w": torch.zeros(3, 2)}, {}, r"'w' is \[3, 2\] in the file, \[2, 3\] in the model"),
        ({"w": torch.zeros(2, 3, dtype=torch.int64)}, {}, "'w' is torch.int64 in the file"),
        ({"w": torch.zeros(2, 3), "x": torch.zeros(1)}, {}, "has a tensor 'x', which the model does not have"),
        ({"w": torch.zeros(2, 3), "w:at": torch.zeros(1)}, {}, "list of values and one of bytes"),
        ({"w": torch.zeros(3), "w:at": BYTES[None]}, {}, "list of values and one of bytes"),
        ({"w": torch.zeros(3, 1), "w:at": BYTES}, {}, "list of values and one of bytes"),
        ({"w": torch.zeros(2), "w:at": BYTES}, {}, "positions"),
        ({"w": torch.zeros(2, 3)}, {"v": "w"}, "has a tensor 'v', which the model does not have"),
        ({"w": torch.zeros(2, 3)}, {"w": "v"}, "no tensor 'v'"),
        ({"w": torch.zeros(2, 3), "vbdrop:at": BYTES}, {}, "has a tensor 'vbdrop:at'"),
    ],
)
def test_what_does_not_fit_the_model_is_named(tensors, tied, message):
    assert from_stored({"w": torch.ones(3), "w:at": BYTES}, {}, LIKE)["w"].tolist() == [[1, 1, 0], [1, 0, 0]]
    with pytest.raises(FileFormatError, match=message):
        from_stored(tensors, tied, LIKE)

"""Data in the forms in which people have it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from vbdrop.targets.batches import Batches

MODEL = nn.Linear(3, 2)
X, Y = torch.arange(30.0).view(10, 3), torch.arange(10) % 2


def all_of(batches):
    pairs = [(batch.args[0], batch.targets) for batch in batches]
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (X.numpy(), Y.numpy()),
        (X.double().numpy(), Y.numpy().astype(np.int32)),
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=4),
        [(X[:6], Y[:6]), (X[6:], Y[6:])],
    ],
    ids=["tensors", "arrays", "other types", "data set", "loader", "list"],
)
def test_every_form_gives_the_same_examples(data):
    batches = Batches(data, "train", MODEL, batch_size=4)
    assert batches.n_examples == 10
    assert len(batches) == len(list(batches))
    x, y = all_of(batches)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(x, X)
    assert torch.equal(y, Y)


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y)], ids=["tensors", "data set"])
def test_a_random_order_has_every_example_once_and_follows_the_seed(data):
    batches = Batches(data, "train", MODEL, batch_size=3, shuffle=True)
    torch.manual_seed(1)
    first = all_of(batches)[0]
    torch.manual_seed(1)
    assert torch.equal(first, all_of(batches)[0])
    assert not torch.equal(first, X)
    assert torch.equal(first.sort(0).values, X)


@pytest.mark.parametrize(
    ("batch_size", "sizes"),
    [(1, [1] * 10), (2, [2] * 5), (3, [3, 3, 4]), (4, [4, 4, 2]), (9, [10]), (10, [10]), (11, [10])],
)
@pytest.mark.parametrize("form", [lambda *arrays: arrays, TensorDataset], ids=["tensors", "data set"])
def test_a_single_example_belongs_to_the_batch_before_it(form, batch_size, sizes):
    for shuffle in (False, True):
        batches = Batches(form(X, Y), "train", MODEL, batch_size=batch_size, shuffle=shuffle)
        assert [len(batch) for batch in batches] == sizes
        assert len(batches) == len(sizes)
        seen = all_of(batches)[0]
        assert torch.equal(seen.sort(0).values if shuffle else seen, X)
    assert len(Batches(form(X[:1], Y[:1]), "train", MODEL, batch_size=batch_size)) == 1


def test_a_dict_has_named_inputs_and_targets():
    batches = Batches({"a": X, "b": X.numpy(), "labels": Y}, "train", MODEL, batch_size=4)
    batch = next(iter(batches))
    assert sorted(batch.kwargs) == ["a", "b"]
    assert torch.equal(batch.targets, Y[:4])
    loader = DataLoader([{"x": row, "y": label} for row, label in zip(X, Y, strict=True)], batch_size=5)
    assert [len(batch) for batch in Batches(loader, "train", MODEL)] == [5, 5]


def test_several_inputs_come_before_the_targets():
    batch = next(iter(Batches((X, X + 1, Y), "train", MODEL, batch_size=4)))
    assert len(batch.args) == 2
    assert torch.equal(batch.args[1], X[:4] + 1)
    assert [len(part) for part in (batch.first(2), *batch.first(2).args)] == [2, 2, 2]


def test_a_split_of_ones_own():
    data = [{"image": X, "what": Y, "note": "a"}]
    batches = Batches(data, "train", MODEL, split=lambda batch: (batch["image"], batch["what"]))
    assert torch.equal(next(iter(batches)).args[0], X)


def test_batches_take_the_precision_of_the_model():
    assert next(iter(Batches((X, Y), "train", nn.Linear(3, 2).double()))).args[0].dtype == torch.float64


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (X, TypeError, "`train` must have inputs and targets, such as a tuple"),
        (3, TypeError, "`train` must be a DataLoader"),
        ("digits", TypeError, "`train` must be a DataLoader"),
        ((X, Y[:5]), ValueError, "as many targets as inputs; got 5 and 10"),
        ((X[:0], Y[:0]), ValueError, "it is empty"),
        ([], ValueError, "it is empty"),
        (DataLoader(TensorDataset(X[:0], Y[:0])), ValueError, "it is empty"),
        (iter([(X, Y)]), TypeError, "must have a length"),
        (DataLoader(Stream()), TypeError, "must have a length"),
        ({"x": X, "z": Y}, ValueError, "the keys 'x', 'z'"),
        ([X], TypeError, r"a tuple \(inputs, ..., targets\)"),
    ],
)
def test_what_is_no_data_says_what_it_must_be(data, error, message):
    with pytest.raises(error, match=message):
        Batches(data, "train", MODEL)


def test_batches_are_counted_without_a_trace_in_the_random_numbers():
    class Shuffled:
        def __len__(self):
            return 2

        def __iter__(self):
            return iter([(torch.eye(3)[order], order) for order in torch.randperm(3).repeat(2, 1)])

    model = nn.Linear(3, 3)
    torch.manual_seed(0)
    expected = torch.rand(())
    torch.manual_seed(0)
    assert Batches(Shuffled(), "train", model).n_examples == 6
    assert torch.equal(torch.rand(()), expected)

"""Validation splits: fixed, seeded, and the same on every machine and version."""

import dataclasses
import hashlib

import numpy as np
import numpy.typing as npt
import torch

from vbdrop.data.dataset import Dataset
from vbdrop.data.errors import DataError

BLOCK = 100
"""The number of neighbouring images held out together if it is not known which of them belong together."""

SPLITS = {
    "image": "single images, drawn at random",
    "group": "all images of a group, such as the digits of one photograph",
    "block": f"{BLOCK} neighbours at a time, for a set whose groups are neighbours but not known",
}
"""Split -> what is held out together."""


def hold_out(dataset: Dataset, n_valid: int = 5_000, *, seed: int = 0, split: str = "image") -> Dataset:
    """Hold out part of the training data: the result trains on the rest, and has that part in place of the test data.

    The same code can thus train and evaluate on a data set or on its validation split, where it cannot see the real
    test data. The remaining images keep their order. By default, MNIST is split into 55,000 and 5,000.

    Args:
        dataset: The full data set.
        n_valid: How many training images to hold out. If whole groups have a few more, the surplus is in neither part.
        seed: Chooses them; another seed gives an independent draw.
        split: What is held out, a key of :data:`SPLITS`.

    Raises:
        ValueError: ``n_valid`` leaves nothing to train on, or nothing to validate with.
        DataError: ``split`` needs an index of groups, and the data set has none.

    Example:
        >>> from vbdrop.data import hold_out, load
        >>> split = hold_out(load("digits"), 1_000)
        >>> len(split.train_labels), len(split.test_labels)
        (7000, 1000)
    """
    count = len(dataset.train_labels)
    if not 1 <= n_valid < count:
        raise ValueError(
            f"`n_valid` must be between 1 and {count - 1}, one less than the training images; got {n_valid}."
        )
    # RandomState is the one generator whose stream NumPy promises never to change.
    random = np.random.RandomState(seed)
    if split == "image":
        order = random.permutation(count)
        held = order[:n_valid]
    else:
        groups = _groups(dataset, split)
        held = _whole_groups(groups, random.permutation(int(groups.max()) + 1), n_valid)
    if len(held) == count:
        raise ValueError(f"`n_valid` must leave some of the groups to train on; got {n_valid} of {count} images.")
    rest = np.setdiff1d(np.arange(count), held)
    train, valid = (torch.from_numpy(np.sort(part)) for part in (rest, held[:n_valid]))
    origin = f"{dataset.checksum} held out: {n_valid}, seed {seed}" + ("" if split == "image" else f", {split}")
    return dataclasses.replace(
        dataset,
        train_images=dataset.train_images[train],
        train_labels=dataset.train_labels[train],
        test_images=dataset.train_images[valid],
        test_labels=dataset.train_labels[valid],
        train_groups=None,
        checksum=hashlib.sha256(origin.encode()).hexdigest(),
    )


def _groups(dataset: Dataset, split: str) -> npt.NDArray[np.int64]:
    """The group of each training image, numbered from 0."""
    if split == "block":
        return np.arange(len(dataset.train_labels)) // BLOCK
    if split != "group":
        raise ValueError(f"`split` must be one of {', '.join(SPLITS)}; got {split!r}.")
    if dataset.train_groups is None:
        raise DataError(
            f"the data set {dataset.name} has no index of which images belong together, and the split needs one: "
            "see its documentation for the file"
        )
    return np.unique(dataset.train_groups.numpy(), return_inverse=True)[1]


def _whole_groups(groups: npt.NDArray[np.int64], order: npt.NDArray[np.int64], least: int) -> npt.NDArray[np.int64]:
    """The images of the first groups, in the given order, until there are at least this many."""
    sizes = np.bincount(groups)[order]
    chosen = order[: int(np.searchsorted(sizes.cumsum(), least)) + 1]
    rank = np.full(len(order), len(order))
    rank[chosen] = np.arange(len(chosen))
    by_rank = np.argsort(rank[groups], kind="stable")
    return by_rank[: int(np.isin(groups, chosen).sum())]

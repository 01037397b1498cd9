"""Validation splits: fixed, seeded, and the same on every machine and version."""

import dataclasses
import hashlib

import numpy as np
import torch

from vbdrop.data.dataset import Dataset


def hold_out(dataset: Dataset, n_valid: int = 5_000, *, seed: int = 0) -> Dataset:
    """Hold out part of the training data: the result has the rest to train on, and that part in place of the test.

    So what trains and evaluates on a data set does the same on its validation split, and cannot see the real
    test data. The order of the images that remain is kept. With the default, MNIST gives 55,000 and 5,000.

    Args:
        dataset: The full data set.
        n_valid: How many training images to hold out.
        seed: Which ones; a different seed gives an independent draw.

    Raises:
        ValueError: ``n_valid`` leaves nothing to train on, or nothing to validate with.

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
    order = np.random.RandomState(seed).permutation(count)
    valid, train = (torch.from_numpy(np.sort(part)) for part in (order[:n_valid], order[n_valid:]))
    origin = f"{dataset.checksum} held out: {n_valid}, seed {seed}"
    return dataclasses.replace(
        dataset,
        train_images=dataset.train_images[train],
        train_labels=dataset.train_labels[train],
        test_images=dataset.train_images[valid],
        test_labels=dataset.train_labels[valid],
        checksum=hashlib.sha256(origin.encode()).hexdigest(),
    )

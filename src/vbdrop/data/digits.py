"""Ten thousand real handwritten digits that come with the package, for examples, tests and first steps.

They are from MNIST: 800 training and 200 test images of each class, taken at even steps through MNIST's own order
and kept in that order. ``DIGITS.md`` beside this file has the attribution and describes the selection.
"""

import hashlib
import io
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

SHA256 = "3fbc431aad3e5279440915b37f93c80aaf570ff551b56a56afadb25986cd2f0c"
"""The sha256 of ``digits.npz`` as written by ``tools/draw_digits.py``."""


@dataclass(frozen=True, eq=False)
class Digits:
    """Images in [0, 1] (float32, count x 1 x 28 x 28) and their labels 0 to 9 (int64, one per image)."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def digits() -> Digits:
    """Load the embedded digits: 8,000 for training and 2,000 for test, balanced over the ten classes.

    Every call returns new tensors, so they may be changed in place.

    Returns:
        The training and test images with their labels.

    Raises:
        RuntimeError: The file in the installed package is damaged.

    Example:
        >>> from vbdrop.data import digits
        >>> data = digits()
        >>> data.train_images.shape, data.test_images.shape
        (torch.Size([8000, 1, 28, 28]), torch.Size([2000, 1, 28, 28]))
        >>> data.test_labels.bincount()
        tensor([200, 200, 200, 200, 200, 200, 200, 200, 200, 200])
    """
    packed = files("vbdrop.data").joinpath("digits.npz").read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    if found != SHA256:
        raise RuntimeError(
            f"the embedded digits must have the sha256 {SHA256}; got {found}. "
            "The installed file is damaged: install vbdrop again."
        )
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return Digits(
            train_images=_scaled(arrays["train_images"]),
            train_labels=torch.from_numpy(arrays["train_labels"]).long(),
            test_images=_scaled(arrays["test_images"]),
            test_labels=torch.from_numpy(arrays["test_labels"]).long(),
        )


def _scaled(pixels: np.ndarray) -> Tensor:
    """Convert bytes of shape (count, 28, 28) to numbers in [0, 1] with a channel axis."""
    return torch.from_numpy(pixels).unsqueeze(1).float().div_(255)

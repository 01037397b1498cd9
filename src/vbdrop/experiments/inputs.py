"""From a data set to the examples that a run trains on and is evaluated on."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import pad

from vbdrop.data import hold_out, load, normalise
from vbdrop.experiments.config import Config
from vbdrop.models import MODELS
from vbdrop.train import Batch, RecordError


class Examples(NamedTuple):
    """The examples of a run."""

    train: Batch
    test: Batch


class Facts(NamedTuple):
    """What must be known about a data set to plan a run on it."""

    checksum: str
    train: int
    test: int


@lru_cache(maxsize=8)
def facts(data: str, data_dir: Path | None = None) -> Facts:
    """Load a data set and return its checksum and size.

    Raises:
        DataError: It is missing or damaged.

    Example:
        >>> facts("digits")[1:]
        (8000, 2000)
    """
    dataset = load(data, data_dir)
    return Facts(dataset.checksum, len(dataset.train_labels), len(dataset.test_labels))


def examples(config: Config, data_dir: Path | None = None) -> Examples:
    """Load the examples of a run: split, cut, fitted to the network and normalised. The most recent ones are cached.

    Raises:
        DataError: The data are missing or damaged.
        RecordError: They are not the data of the run.
        ValueError: They do not fit the network.
    """
    return _examples(
        config.data,
        config.checksum,
        config.model,
        config.normalise,
        config.n_valid,
        config.split,
        config.n_train,
        data_dir,
    )


@lru_cache(maxsize=1)
def _examples(
    data: str,
    checksum: str,
    model: str,
    how: str,
    n_valid: int,
    split: str,
    n_train: int | None,
    data_dir: Path | None,
) -> Examples:
    dataset = load(data, data_dir)
    if dataset.checksum != checksum:
        raise RecordError(f"the run needs the data set {data} with the checksum {checksum}; got {dataset.checksum}")
    if n_valid:
        dataset = hold_out(dataset, n_valid, split=split)
    count = len(dataset.train_labels)
    if n_train is not None and n_train > count:
        raise ValueError(f"`n_train` must be at most the {count} training examples of {data}; got {n_train}.")
    shape = MODELS[model].input_shape
    images = (fitted(part, shape) for part in (dataset.train_images[:n_train], dataset.test_images))
    train, test = normalise(how, *images)
    return Examples(Batch(train, dataset.train_labels[:n_train]), Batch(test, dataset.test_labels))


def fitted(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Fit images to the input shape of a network: add a dark border, and repeat grey in every channel.

    Raises:
        ValueError: The images are too large, or have more channels than the network.

    Example:
        >>> import torch
        >>> fitted(torch.zeros(5, 1, 28, 28, dtype=torch.uint8), (3, 32, 32)).shape
        torch.Size([5, 3, 32, 32])
    """
    channels, height, width = images.shape[1:]
    if (channels, height, width) == shape:
        return images
    if channels not in (1, shape[0]) or height > shape[1] or width > shape[2]:
        raise ValueError(f"images of shape {(channels, height, width)} do not fit a network that takes {shape}.")
    down, across = shape[1] - height, shape[2] - width
    padded = pad(images, (across // 2, across - across // 2, down // 2, down - down // 2))
    return padded.expand(-1, shape[0], -1, -1).contiguous()

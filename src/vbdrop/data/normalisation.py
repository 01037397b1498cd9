"""How pixels become network inputs: the papers' normalisations, by name.

==============  ===================================================  ==========================================
name            what a pixel becomes                                 who uses it
==============  ===================================================  ==========================================
unit            x / 255                                              the usual choice; Kingma's MNIST runs
caffe           x / 256                                              Caffe's LeNets: magnitude pruning, dynamic
                                                                     network surgery, SSL
centred         x / 256 - mean image                                 sparse variational dropout on MNIST
symmetric       (x / 255 - 0.5) / 0.5                                Bayesian compression; reruns of Kingma's
                                                                     CIFAR-10 net
standardised    (x / 255 - mean) / sd, by channel                    the usual choice for colour images
whitened        ZCA: (x - mean image) (cov + 1e-5)^(-1/2)            sparse variational dropout on CIFAR-10
==============  ===================================================  ==========================================

Whatever is estimated (a mean, a covariance) is estimated on the training images alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Transform = Callable[[Tensor], Tensor]
_ROWS = 4_096  # images at a time, to bound the memory


def normalise(by: str, train: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Turn bytes into float32 inputs, once, before training.

    Args:
        by: A key of :data:`NORMALISATIONS`.
        train: The training images, uint8; means and covariances are estimated on them.
        *others: Validation or test images, transformed in the same way.

    Returns:
        The inputs for ``train`` and for each of the others.

    Raises:
        ValueError: The name is not in the table, or the images are not uint8.

    Example:
        >>> from vbdrop.data import load, normalise
        >>> digits = load("digits")
        >>> train, test = normalise("centred", digits.train_images, digits.test_images)
        >>> train.dtype, bool(train.mean(0).abs().max() < 1e-5)
        (torch.float32, True)
    """
    if by not in NORMALISATIONS:
        raise ValueError(f"`by` must be one of {', '.join(NORMALISATIONS)}; got {by!r}.")
    for images in (train, *others):
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                "images must be uint8 of shape count x channels x height x width; "
                f"got {images.dtype} of shape {tuple(images.shape)}."
            )
    transform = NORMALISATIONS[by](train)
    return tuple(transform(images) for images in (train, *others))


def _mean_image(images: Tensor) -> Tensor:
    """Add up whole numbers: exact, and without a copy of all images in double precision."""
    return images.sum(0, dtype=torch.int64).double() / len(images)


def _unit(train: Tensor) -> Transform:
    return lambda images: images.float().div_(255)


def _caffe(train: Tensor) -> Transform:
    return lambda images: images.float().div_(256)


def _centred(train: Tensor) -> Transform:
    mean = _mean_image(train).div(256).float()
    return lambda images: images.float().div_(256).sub_(mean)


def _symmetric(train: Tensor) -> Transform:
    return lambda images: images.float().div_(127.5).sub_(1)


def _standardised(train: Tensor) -> Transform:
    values = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.stack([channel.flatten().bincount(minlength=256) for channel in train.unbind(1)])
    shares = counts.double() / counts.sum(1, keepdim=True)
    mean = shares @ values
    sd = (shares @ values.square() - mean.square()).clamp(min=1e-12).sqrt()
    mean, sd = (part.float().view(1, -1, 1, 1) for part in (mean, sd))
    return lambda images: images.float().div_(255).sub_(mean).div_(sd)


def _whitened(train: Tensor) -> Transform:
    """Fit in double precision: the eigenvalues of colour images span more than seven orders of magnitude.

    Takes seconds for grey images, and a minute or two on one core for CIFAR-10.
    """
    mean = _mean_image(train).flatten()
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for rows in torch.split(train, _ROWS):
        centred = rows.flatten(1).double() - mean
        covariance.addmm_(centred.T, centred, alpha=1 / len(train))
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    # An eigenvalue of zero may come out slightly negative.
    whitener = (vectors * (eigenvalues.clamp(min=0) + 1e-5).rsqrt()) @ vectors.T

    mean, whitener = mean.float(), whitener.float()

    def transform(images: Tensor) -> Tensor:
        flat = [(rows.flatten(1).float() - mean) @ whitener for rows in torch.split(images, _ROWS)]
        return torch.cat(flat).view(images.shape)

    return transform


NORMALISATIONS: dict[str, Callable[[Tensor], Transform]] = {
    "unit": _unit,
    "caffe": _caffe,
    "centred": _centred,
    "symmetric": _symmetric,
    "standardised": _standardised,
    "whitened": _whitened,
}
"""Name -> a function that fits the training images and returns the transform."""

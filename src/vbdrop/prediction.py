"""Predictions with their uncertainty: many noisy forwards, averaged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop.layers import Variational

Link = Callable[[Tensor], Tensor]


def softmax(logits: Tensor) -> Tensor:
    """Class probabilities from logits, over the last axis: the default link."""
    return torch.softmax(logits, dim=-1)


@contextmanager
def sampling(model: nn.Module) -> Iterator[nn.Module]:
    """Noise in eval mode, inside a ``with`` block; dead weights and units give neither mean nor noise.

    Args:
        model: A converted model.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Rates(rate=0.5))
        >>> x = torch.ones(1, 4)
        >>> with vbdrop.sampling(model.eval()):
        ...     bool((model(x) == model(x)).all())
        False
    """
    modules = [module for module in model.modules() if isinstance(module, Variational)]
    before = [module.sampling for module in modules]
    try:
        for module in modules:
            module.sampling = True
        yield model
    finally:
        for module, value in zip(modules, before, strict=True):
            module.sampling = value


@dataclass(frozen=True)
class Prediction:
    """What a model believes about each example.

    Attributes:
        mean: The mean of the linked outputs over the samples: for class probabilities, the predictive distribution.
        std: Their standard deviation over the samples.
        entropy: The entropy of ``mean`` in nats: all of the uncertainty. None if the outputs are no distribution.
        mutual_information: The part of it that comes from the weights: what more data could take away. None likewise.
        samples: All samples, samples x batch x ..., if asked for.
    """

    mean: Tensor
    std: Tensor
    entropy: Tensor | None
    mutual_information: Tensor | None
    samples: Tensor | None = None


def _entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(-1)


def _is_distribution(values: Tensor) -> bool:
    total = values.sum(-1)
    return bool((values >= 0).all()) and bool(torch.isclose(total, torch.ones_like(total), atol=1e-3).all())


@torch.no_grad()
def predict(
    model: nn.Module,
    x: Tensor,
    samples: int = 32,
    link: Link | None = None,
    *,
    keep_samples: bool = False,
    max_rows: int = 8192,
) -> Prediction:
    """The prediction of a converted model, averaged over its noise.

    Args:
        model: A converted model that maps a batch to one tensor with the batch first; its mode is restored afterwards.
        x: A batch of inputs.
        samples: How many draws of the noise; as many as fit are computed as one batch.
        link: From the model's outputs to what is averaged; None for `softmax`. Use ``torch.nn.Identity()`` for a
            regression.
        keep_samples: Whether to return all samples too.
        max_rows: The largest batch that one forward may see.

    Returns:
        Mean, standard deviation, predictive entropy and mutual information.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 3)
        >>> _ = vbdrop.convert_(model, vbdrop.Rates(rate=0.5))
        >>> prediction = vbdrop.predict(model, torch.ones(2, 4), samples=16)
        >>> prediction.mean.shape, bool((prediction.mutual_information >= 0).all())
        (torch.Size([2, 3]), True)
    """
    for name, value in (("samples", samples), ("max_rows", max_rows)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be an int >= 1; got {value!r}.")
    if x.dim() == 0 or x.shape[0] == 0:
        raise ValueError(f"`x` must be a batch with at least one example; got shape {tuple(x.shape)}.")
    link = softmax if link is None else link
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with sampling(model):
            drawn = torch.cat([link(part) for part in _draws(model, x, samples, max_rows)])
    finally:
        for module, mode in training.items():
            module.training = mode
    mean = drawn.mean(0)
    entropy = mutual = None
    if _is_distribution(mean):
        entropy = _entropy(mean)
        mutual = (entropy - _entropy(drawn).mean(0)).clamp_min(0)
    std = drawn.std(0) if samples > 1 else torch.zeros_like(mean)
    return Prediction(mean, std, entropy, mutual, drawn if keep_samples else None)


def _draws(model: nn.Module, x: Tensor, samples: int, max_rows: int) -> Iterator[Tensor]:
    """Noisy outputs, several samples a forward: tensors of samples x batch x ..."""
    at_once = max(1, max_rows // x.shape[0])
    for start in range(0, samples, at_once):
        count = min(at_once, samples - start)
        out = model(x.repeat(count, *[1] * (x.dim() - 1)))
        if not isinstance(out, Tensor) or out.shape[0] != count * x.shape[0]:
            got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(f"`model` must return one tensor with the batch first; got {got}.")
        yield out.view(count, x.shape[0], *out.shape[1:])

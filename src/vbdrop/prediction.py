"""Predictions with their uncertainty: many noisy forwards, averaged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop.convert.evaluating import evaluating
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
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    modules = [module for module in model.modules() if isinstance(module, Variational)]
    if not modules:
        raise ValueError("`model` has no converted layer, so it has no noise; call vbdrop.convert_(model, ...) first.")
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
    """Whether the last axis holds probabilities; the first is the batch."""
    if values.dim() < 2 or not bool((values >= 0).all()):
        return False
    total = values.sum(-1)
    return torch.allclose(total, torch.ones_like(total), atol=1e-3)


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
        link: From the model's outputs, in float32 or wider, to what is averaged; None for `softmax`, over the last
            axis. Use ``torch.nn.Identity()`` for a regression.
        keep_samples: Whether to return all samples too.
        max_rows: The largest batch that one forward may see; a larger ``x`` is split.

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
    if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] == 0:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"`x` must be a Tensor, a batch with at least one example; got {got}.")
    if not (link is None or callable(link)):
        raise TypeError(f"`link` must be a function from the model's outputs to a tensor, or None; got {link!r}.")
    link = softmax if link is None else link
    with sampling(model), evaluating(model):
        parts = [_draw(model, part, samples, link, max_rows) for part in torch.split(x, max_rows)]
    drawn = torch.cat(parts, dim=1)
    mean = drawn.mean(0)
    entropy = mutual = None
    if _is_distribution(mean):
        entropy = _entropy(mean)
        mutual = (entropy - _entropy(drawn).mean(0)).clamp_min(0)
    std = drawn.std(0) if samples > 1 else torch.zeros_like(mean)
    return Prediction(mean, std, entropy, mutual, drawn if keep_samples else None)


def _draw(model: nn.Module, x: Tensor, samples: int, link: Link, max_rows: int) -> Tensor:
    """Linked outputs, samples x batch x ..., with as many samples a forward as fit into ``max_rows``."""
    at_once = max(1, max_rows // x.shape[0])
    drawn = []
    for start in range(0, samples, at_once):
        count = min(at_once, samples - start)
        rows = count * x.shape[0]
        out = _checked("model", model(x.repeat(count, *[1] * (x.dim() - 1))), rows)
        linked = _checked("link", link(out.to(torch.promote_types(out.dtype, torch.float32))), rows)
        drawn.append(linked.view(count, x.shape[0], *linked.shape[1:]))
    return torch.cat(drawn)


def _checked(name: str, out: object, rows: int) -> Tensor:
    """What the model or the link returned, if it is one tensor of numbers with the batch first."""
    if isinstance(out, Tensor) and out.is_floating_point() and out.dim() > 0 and out.shape[0] == rows:
        return out
    got = f"shape {tuple(out.shape)}, {out.dtype}" if isinstance(out, Tensor) else type(out).__name__
    raise ValueError(f"`{name}` must return one floating-point tensor with the batch, {rows} rows, first; got {got}.")

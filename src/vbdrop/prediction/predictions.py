"""Predictions with their uncertainty: the average of many noisy forwards, or one forward of means and variances."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import unwrapped
from vbdrop.convert.evaluating import evaluating
from vbdrop.moments import Moments, propagate_moments
from vbdrop.prediction.eval_noise import sampling
from vbdrop.prediction.forwards import repeated_forward, shared_forward

Link = Callable[[Tensor], Tensor]


def softmax(logits: Tensor) -> Tensor:
    """Class probabilities from logits, over the last axis: the default link."""
    if logits.shape[1:].numel() == 1:
        raise ValueError(
            "`link` must be given for a model that returns one number per example, such as torch.sigmoid or "
            f"torch.nn.Identity(); got None and outputs of shape {tuple(logits.shape)}."
        )
    return torch.softmax(logits, dim=-1)


@dataclass(frozen=True)
class Prediction:
    """The prediction of a model for each example, with its uncertainty.

    Attributes:
        mean: The mean of the linked outputs over the samples: for class probabilities, the predictive distribution.
        std: Their standard deviation over the samples.
        entropy: The entropy of ``mean`` in nats: the total uncertainty. None if the outputs are not a distribution.
        mutual_information: The part of it that comes from the weights, which more data could reduce. None likewise.
        samples: All samples, samples x batch x ..., if requested.
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
    method: Literal["samples", "moments"] = "samples",
    keep_samples: bool = False,
    max_rows: int = 8192,
) -> Prediction:
    """Return the prediction of a converted model, averaged over its noise.

    Samples are drawn by forwards of the whole model. Everything before its first noise is computed once for all
    samples, and so are both products of a first layer with noisy weights. Moments are propagated once, as if all values
    were normal and independent (`vbdrop.moments.propagate_moments`): this is faster, but only as accurate as that
    assumption.

    Args:
        model: A converted model that maps a batch to one tensor with the batch first, and maps each example
            independently of the others; its mode is restored afterwards.
        x: A batch of inputs.
        samples: The number of draws of the noise; as many as fit are computed as one batch, if the model allows it.
        link: Maps the model's outputs, in float32 or wider, to the values that are averaged; None for `softmax` over
            the last axis. Use ``torch.nn.Identity()`` for regression, and ``torch.sigmoid`` for one logit per example.
        method: ``"samples"``, or ``"moments"`` for one forward of means and variances. With moments only the outputs
            are sampled, from their normal distribution, to average the linked values; ``torch.nn.Identity()`` needs no
            samples.
        keep_samples: Whether to return all samples as well.
        max_rows: The largest batch of one forward; a larger ``x`` is split.

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
    if method not in ("samples", "moments"):
        raise ValueError(f"`method` must be 'samples' or 'moments'; got {method!r}.")
    model = unwrapped(model)
    link = softmax if link is None else link
    draw = _draw if method == "samples" else _draw_outputs
    with sampling(model), evaluating(model):
        if method == "moments" and isinstance(link, nn.Identity) and not keep_samples:
            return _of_moments([_checked_moments(model, part) for part in torch.split(x, max_rows)])
        parts = [draw(model, part, samples, link, max_rows) for part in torch.split(x, max_rows)]
    drawn = torch.cat(parts, dim=1)
    mean = drawn.mean(0)
    entropy = mutual = None
    if _is_distribution(drawn.flatten(0, 1)):
        entropy = _entropy(mean)
        mutual = (entropy - _entropy(drawn).mean(0)).clamp_min(0)
    std = drawn.std(0) if samples > 1 else torch.zeros_like(mean)
    return Prediction(mean, std, entropy, mutual, drawn if keep_samples else None)


def _of_moments(parts: list[Moments]) -> Prediction:
    mean, variance = (torch.cat([getattr(part, name) for part in parts]) for name in ("mean_", "variance"))
    return Prediction(mean, variance.sqrt(), None, None)


def _checked_moments(model: nn.Module, x: Tensor) -> Moments:
    out = propagate_moments(model, x.clone())  # the forward may change its inputs
    _checked("model", out.mean_, x.shape[0])
    return out


def _draw_outputs(model: nn.Module, x: Tensor, samples: int, link: Link, max_rows: int) -> Tensor:
    """Linked samples of the outputs, samples x batch x ..., drawn from the moments of one forward."""
    out = _checked_moments(model, x)
    noise = torch.randn(samples, *out.shape, dtype=out.dtype, device=out.device)
    drawn = out.mean_ + out.variance.sqrt() * noise
    linked = _checked("link", link(drawn.flatten(0, 1)), samples * x.shape[0])
    return linked.view(samples, x.shape[0], *linked.shape[1:])


def _draw(model: nn.Module, x: Tensor, samples: int, link: Link, max_rows: int) -> Tensor:
    """Linked outputs, samples x batch x ..., with as many samples per forward as fit into ``max_rows``."""
    at_once = max(1, max_rows // x.shape[0])
    ways, drawn, done = [shared_forward, repeated_forward], [], 0
    while done < samples:
        count = min(at_once, samples - done) if ways else 1
        inputs = x.clone()  # the forward may change its inputs
        result = ways[0](model, inputs, count) if count > 1 else model(inputs)
        if count > 1 and result is None:
            del ways[0]
            continue
        rows = count * x.shape[0]
        out = _checked("model", result, rows)
        linked = _checked("link", link(out.to(torch.promote_types(out.dtype, torch.float32))), rows)
        drawn.append(linked.view(count, x.shape[0], *linked.shape[1:]))
        done += count
    return torch.cat(drawn)


def _checked(name: str, out: object, rows: int) -> Tensor:
    """Check that the model or the link returned one floating-point tensor with the batch first."""
    if isinstance(out, Tensor) and out.is_floating_point() and out.dim() > 0 and out.shape[0] == rows:
        return out
    got = f"shape {tuple(out.shape)}, {out.dtype}" if isinstance(out, Tensor) else type(out).__name__
    raise ValueError(f"`{name}` must return one floating-point tensor with the batch, {rows} rows, first; got {got}.")

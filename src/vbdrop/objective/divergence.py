"""The KL divergence of a whole model from its priors."""

from collections.abc import Iterator

from torch import Tensor, nn

from vbdrop.layers import NoisyTensor, Variational
from vbdrop.layers.noisy import kl_of


def noisy_tensors(model: nn.Module) -> Iterator[tuple[str, NoisyTensor]]:
    """Every tensor of noisy weights in the model, with a name; a shared module appears once.

    The name is that of the module, followed by the tensor's own name if the module has several.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Weights(), vbdrop.Units())
        >>> [name for name, _ in noisy_tensors(model)]
        ['0', '0.gate']
    """
    for name, module in _checked(model).named_modules():
        if isinstance(module, Variational):
            entries = list(module.variational())
            for entry in entries:
                own = [] if name and len(entries) == 1 else [entry.name]
                yield ".".join([name, *own] if name else own), entry


def kl(model: nn.Module) -> Tensor:
    """The KL divergence of the model's weights from their priors: the sum over all of them.

    The gradient of the KL reaches the parameters only through this tensor. For parameters that are distributed over
    processes (``DTensor``), it is the KL of this process's shards: sum it over the processes to get the total.

    Args:
        model: A model with at least one layer converted by `vbdrop.convert_`.

    Returns:
        One number, in float32 or float64.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> vbdrop.kl(model).item() > 0
        True
    """
    return kl_terms(model)[0]


def kl_terms(model: nn.Module, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """``scale`` times the KL of the model, with its gradient; and the KL itself, detached.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> scaled, total = kl_terms(model, scale=0.5)
        >>> bool(scaled == 0.5 * total)
        True
    """
    entries = list(entries_of(model))
    if not entries:
        raise ValueError("`model` has no converted layer, so it has no KL; call vbdrop.convert_(model, ...) first.")
    return kl_of(entries, scale)


def entries_of(model: nn.Module) -> Iterator[NoisyTensor]:
    """`noisy_tensors` without the names, which take longer to build than the tensors."""
    for module in _checked(model).modules():
        if isinstance(module, Variational):
            yield from module.variational()


def _checked(model: nn.Module) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    return model

"""Outputs of layers that have no effect on any output of the model, found by trial.

An analysis of the graph misses some of them: channels that are tied to needed ones, or that an unknown operation drops.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import pytree
from vbdrop.analysis.key_value_cache import without_cache
from vbdrop.analysis.layer_shapes import owner
from vbdrop.compression.noise_probes import noise_on_layers

PROBES = (1.0, 1.0, 10.0, 1000.0, 1000.0, 1000.0)
"""The scales of the noise at which gradients are computed, relative to the size of a layer's outputs.

The last ones are for activations that let hardly any input through: an output that they hide still has an effect.
"""

CHANGES = (1e-3, -1e-3, 1.0, -1.0, 1e3, -1e3)
"""The scales of noise that must have no effect: small ones for saturating operations, large ones for rounding."""

FEW = 32
"""If noise on all outputs in question has an effect, at most this many of them are tried one by one."""


class TriedWeight(NamedTuple):
    """A weight that maps inputs to outputs.

    Attributes:
        weight: Its name.
        bias: The name of the bias that is added, if the model has one of this name.
        transposed: Whether the weight's first axis runs over inputs.
    """

    weight: str
    bias: str
    transposed: bool = False


def unread_outputs(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], products: list[TriedWeight]
) -> dict[str, Tensor]:
    """For each weight, which of its outputs can take any value without changing the model's outputs.

    Args:
        model: A plain model in eval mode; it is not changed.
        args: Inputs by position; few examples are enough.
        kwargs: Inputs by name.
        products: The weights to check; those that the model does not have are skipped.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
        >>> with torch.no_grad():
        ...     _ = model[2].weight[:, 1].zero_()
        >>> unread_outputs(model, (torch.randn(4, 2),), {}, [TriedWeight("0.weight", "0.bias")])
        {'0.weight': tensor([False,  True, False])}
    """
    with torch.random.fork_rng(devices=[]), without_cache(copy.deepcopy(model)) as trial:
        torch.manual_seed(0)
        run = _Run(trial, args, dict(kwargs))
        known = [product for product in products if product.weight in run.parameters]
        try:
            suspects = _without_gradient(run, known)
            found = {product.weight: _confirmed(run, product, mask) for product, mask in suspects}
        except _NoAnswerError:
            return {}
    return {weight: mask for weight, mask in found.items() if mask.any()}


class _NoAnswerError(Exception):
    """Raised if the model does not run on such values, or has no gradient."""


class _Run:
    """A model and inputs for it."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.model, self.inputs = model, (args, kwargs)
        self.parameters = dict(model.named_parameters(remove_duplicate=False))

    def __call__(self) -> list[Tensor]:
        args, kwargs = pytree.tree_map_only(Tensor, Tensor.clone, self.inputs)
        try:
            outputs = pytree.tree_leaves(self.model(*args, **kwargs))
        except Exception as error:  # a forward may raise anything
            raise _NoAnswerError from error
        return [output for output in outputs if isinstance(output, Tensor)]

    def gradients(self, of: Mapping[int, Tensor]) -> dict[int, Tensor | None]:
        """The gradients of a random linear combination of the outputs."""
        with torch.enable_grad():
            outputs = [output for output in self() if output.requires_grad]
            total = sum(((output * torch.randn_like(output)).sum() for output in outputs), start=torch.zeros(()))
            try:
                found = torch.autograd.grad(total, list(of.values()), allow_unused=True) if outputs else ()
            except RuntimeError as error:
                raise _NoAnswerError from error
        return dict(zip(of, found, strict=False))

    def any_by_output(self, product: TriedWeight, tensor: Tensor) -> Tensor:
        """For each output, whether a tensor with the shape of a weight or bias has any nonzero entry."""
        if not product.transposed or tensor.dim() == 1:
            return tensor.reshape(len(tensor), -1).ne(0).any(1).cpu()
        groups = self._groups(product)
        grouped = tensor.reshape(groups, len(tensor) // groups, tensor.shape[1], -1)
        return grouped.ne(0).any(-1).any(1).flatten().cpu()

    def only(self, product: TriedWeight, which: Tensor, tensor: Tensor) -> Tensor:
        """A tensor with the shape of a weight or bias, zeroed for all but the given outputs."""
        which = which.to(tensor.device)
        if product.transposed and tensor.dim() > 1:
            which = which.view(self._groups(product), 1, -1)
            which = which.expand(-1, len(tensor) // len(which), -1).flatten(0, 1)
        return tensor * which.view(*which.shape, *[1] * (tensor.dim() - which.dim()))

    def _groups(self, product: TriedWeight) -> int:
        return int(getattr(self.model.get_submodule(owner(product.weight)), "groups", 1))

    def parts(self, product: TriedWeight) -> list[Tensor]:
        """The weight and, if there is one, the bias."""
        return [self.parameters[name] for name in (product.weight, product.bias) if name in self.parameters]


def _without_gradient(run: _Run, products: list[TriedWeight]) -> list[tuple[TriedWeight, Tensor]]:
    """The outputs whose weights and biases have no gradient."""
    wanted = {id(part): part.requires_grad_() for product in products for part in run.parts(product)}
    masks: dict[str, Tensor] = {}
    for size in PROBES:
        with noise_on_layers(run.model, size):
            gradients = run.gradients(wanted)
        for product in products:
            parts = run.parts(product)
            matters = torch.zeros_like(run.any_by_output(product, parts[0]))
            for part in parts:
                if (gradient := gradients.get(id(part))) is not None:
                    matters |= run.any_by_output(product, gradient)
            masks[product.weight] = masks.get(product.weight, torch.ones_like(matters)) & ~matters
    return [(product, mask) for product in products if (mask := masks[product.weight]).any()]


@torch.no_grad()
def _confirmed(run: _Run, product: TriedWeight, mask: Tensor) -> Tensor:
    """The outputs of a weight that really can take any value."""
    expected, parts = run(), run.parts(product)
    before = [part.clone() for part in parts]

    def is_idle(which: Tensor) -> bool:
        noise = [run.only(product, which, torch.randn_like(part)) for part in parts]
        for factor in CHANGES:
            for part, change in zip(parts, noise, strict=True):
                part += factor * change
            outputs = run()
            for part, old in zip(parts, before, strict=True):
                part.copy_(old)
            if not all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True)):
                return False
        return True

    if is_idle(mask):
        return mask
    found = torch.zeros_like(mask)
    for unit in mask.nonzero().flatten()[:FEW].tolist():
        found[unit] = is_idle(torch.arange(len(mask)) == unit)
    return found

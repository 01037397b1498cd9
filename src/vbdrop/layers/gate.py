"""One gate per unit: learned multiplicative noise on features (Eq. 19)."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import has_forward_hooks, has_global_hooks
from vbdrop.functional import alive, apply_gate, masked, noisy_gates_reference
from vbdrop.kernels import gated_linear, noisy_gates
from vbdrop.layers.modes import Units
from vbdrop.layers.noisy import NoisyTensor
from vbdrop.layers.variational import Variational
from vbdrop.priors import as_prior


class Gate(Variational):
    """Multiplies each unit by ``z ~ N(weight, sigma2)``, one draw per sample and unit, shared over space.

    Args:
        units: The number of units.
        axis: The units' axis, counted from the end (-1 for a linear layer, -3 for images).
        mode: Prior, threshold and initial variance.
        like: A tensor whose device and (widened to float32) dtype the gates take.

    Example:
        >>> gate = Gate(3, axis=-1, mode=Units(), like=torch.ones(1)).eval()
        >>> gate(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[1., 2., 3.]], grad_fn=...)
    """

    wide_parameters: ClassVar[tuple[str, ...]] = ("weight", "log_sigma2")

    def __init__(self, units: int, axis: int, mode: Units, like: Tensor) -> None:
        super().__init__()
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.axis = axis
        self.mode = mode
        self.weight = nn.Parameter(torch.empty(units, dtype=dtype, device=like.device))
        self.log_sigma2 = nn.Parameter(torch.empty(units, dtype=dtype, device=like.device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every gate to exactly 1, with the initial variance."""
        self._buffers.pop("removed", None)
        nn.init.ones_(self.weight)
        nn.init.constant_(self.log_sigma2, self.mode.log_sigma2)

    def variational(self) -> Iterator[NoisyTensor]:
        """The gates."""
        prior, threshold = as_prior(self.mode.prior), self.mode.threshold
        yield NoisyTensor(
            "weight", self.weight, prior, threshold, self.log_sigma2,
            kl_factor=self.current_kl_factor, removed=self.removed_mask,
        )  # fmt: skip

    @torch.no_grad()
    def values(self, threshold: float | None = None) -> Tensor:
        """The factor of each unit without noise: zero where its gate is dead."""
        (entry,) = self.variational()
        return masked(entry.mean, ~entry.dead(threshold))

    def forward(self, x: Tensor) -> Tensor:
        """The gated features."""
        return self.gated(x, self.axis)

    def gated(self, x: Tensor, axis: int) -> Tensor:
        """The gated features, where the units are on this axis, counted from the end."""
        weight, log_sigma2 = self.surviving(self.weight, self.log_sigma2)
        if self.training:
            gated = noisy_gates if self.fused else noisy_gates_reference
            return gated(x, weight, log_sigma2, axis, self._training_threshold)
        return apply_gate(x, *self.used(training=False), axis)

    def used(self, *, training: bool) -> tuple[Tensor, Tensor | None]:
        """The means that a forward multiplies by, and the standard deviations of the noise; None without noise."""
        weight, log_sigma2 = self.surviving(self.weight, self.log_sigma2)
        deviation = torch.exp(0.5 * log_sigma2)
        if training:
            if self._training_threshold is not None:
                weight = masked(weight, alive(weight, log_sigma2, self._training_threshold) | (weight == 0))
            return weight, deviation
        keep = alive(weight, log_sigma2, self.mode.threshold)
        return masked(weight, keep), masked(deviation, keep) if self.sampling else None

    def with_product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        """The output of a linear layer whose inputs go through these gates, in one call.

        Returns:
            The output; None if the gates must be called separately: in eval mode, if they have hooks or their own
            forward, or if the kernel cannot take the tensors.
        """
        hooks = has_forward_hooks(self) or self._backward_hooks or self._backward_pre_hooks
        own_forward = type(self) is not Gate or "forward" in self.__dict__
        if hooks or has_global_hooks() or own_forward or not (self.training and self.fused):
            return None
        gates = self.surviving(self.weight, self.log_sigma2)
        return gated_linear(x, *gates, weight, bias, self._training_threshold)

    @property
    def _training_threshold(self) -> float | None:
        return self.mode.threshold if self.mode.mask_in_training else None

    def extra_repr(self) -> str:
        """The number of units."""
        return f"{self.weight.numel()} units, threshold={self.mode.threshold}"

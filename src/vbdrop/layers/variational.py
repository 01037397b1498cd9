"""What all modules with learned noise have in common."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop.functional import masked
from vbdrop.layers.companions import companion
from vbdrop.layers.noisy import NoisyTensor

NO_VARIANCE = -80.0
"""The log variance that stands for no noise: negligible for any weight, yet the variance is still a normal float32."""


class Variational(nn.Module):
    """A module that holds noisy weights.

    `kl`, `rates`, masks and `param_groups` see a model only through `variational`, so a new kind of layer only needs
    to yield its tensors. Parameters named in ``wide_parameters`` stay in float32 (or wider) when the module is cast to
    half precision.
    """

    wide_parameters: ClassVar[tuple[str, ...]] = ()
    sampling: bool = False
    """Whether noise is drawn in eval mode too; set by `vbdrop.sampling`."""
    fused: bool = True
    """Whether the module may use compiled kernels; False for the plain formula, which can be differentiated twice."""
    kl_factor: float | Tensor
    """A factor on the KL of each noisy weight of this module: one number, or a tensor that broadcasts against the means
    (a buffer, so that it moves with the module). Without it the factor is 1."""

    @property
    def matrices(self) -> tuple[str, ...]:
        """The names of the parameters that are or can be noisy."""
        return ("weight",)

    @abstractmethod
    def variational(self) -> Iterator[NoisyTensor]:
        """The noisy tensors of this module itself, not of its children."""

    @property
    def noise_is_on(self) -> bool:
        """Whether a forward draws noise: in training, and in eval under `vbdrop.sampling`."""
        return self.training or self.sampling

    @property
    def current_kl_factor(self) -> float | Tensor:
        """``kl_factor``, or 1 if it is not set."""
        factor: float | Tensor | None = self.__dict__.get("kl_factor", self._buffers.get("kl_factor"))
        return 1.0 if factor is None else factor

    def is_wide(self, name: str) -> bool:
        """Whether the parameter of this name sets a dropout rate, and stays out of half precision."""
        return name in self.wide_parameters

    @property
    def removed_mask(self) -> Tensor | None:
        """Which weights are dead for good, a buffer named ``removed``; None until `remove_` is called."""
        return self.removed_mask_of("weight")

    def removed_mask_of(self, matrix: str) -> Tensor | None:
        """The `removed_mask` of one of several noisy parameters."""
        return self._buffers.get(companion(matrix, "removed"))

    def remove_(self, mask: Tensor, matrix: str = "weight") -> None:
        """Make weights dead for good: no forward sees their means or their noise, whatever an optimizer does to them.

        Args:
            mask: A boolean tensor of the shape of the noisy parameter, True where a weight is removed.
            matrix: The name of the noisy parameter.
        """
        name = companion(matrix, "removed")
        before = self._buffers.pop(name, None)
        self.register_buffer(name, mask.clone() if before is None else mask | before)

    def surviving(self, mean: Tensor, log_sigma2: Tensor, matrix: str = "weight") -> tuple[Tensor, Tensor]:
        """The means and log variances that a forward uses: those of removed weights are zero and `NO_VARIANCE`."""
        removed = self.removed_mask_of(matrix)
        if removed is None:
            return mean, log_sigma2
        return masked(mean, ~removed), log_sigma2.masked_fill(removed, NO_VARIANCE)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:  # noqa: ANN401
        """Load the mask of removed weights together with the weights."""
        for matrix in self.matrices:
            name = companion(matrix, "removed")
            if (mask := state_dict.get(prefix + name)) is not None:
                if self.removed_mask_of(matrix) is None:
                    like = next(self.parameters(recurse=False)).device
                    self.register_buffer(name, torch.zeros_like(mask, device=like))
            elif prefix + matrix in state_dict:
                self._buffers.pop(name, None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Move or cast the module, keeping the variational parameters out of half precision."""
        wide = [p for name, p in self._parameters.items() if p is not None and self.is_wide(name)]
        ids = {id(t) for p in wide for t in (p, p.grad) if t is not None}

        def keep_wide(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            if id(tensor) in ids and result.dtype in (torch.float16, torch.bfloat16):
                return tensor.to(device=result.device, dtype=torch.float32)
            return result

        super()._apply(keep_wide, recurse)  # type: ignore[no-untyped-call]  # torch's own, untyped
        return self

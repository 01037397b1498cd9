"""The shared part of linear and convolutional layers with noisy weights and gates."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop.functional import (
    MatrixProduct,
    Product,
    alive,
    masked,
    noisy_product_reference,
    noisy_rates_reference,
    noisy_weights_reference,
    upper_bounded,
)
from vbdrop.kernels import noisy_product, noisy_rates, noisy_weights
from vbdrop.layers.companions import companion
from vbdrop.layers.gate import Gate
from vbdrop.layers.modes import Mode, Rates, Units, Weights, without_filters
from vbdrop.layers.noisy import NoisyTensor
from vbdrop.layers.shared_gate import SharedGate, own_gates, reset_missing_
from vbdrop.layers.variational import Variational
from vbdrop.priors import as_prior, log_alpha_of

START_MARGIN = 1.0
"""A weight starts at least this far below its threshold in ``log_alpha``."""

LOWEST_LOG_SIGMA2 = -80.0
"""Initial log variances stay above this, so that their exponentials are normal numbers in float32."""


class NoisyLayer(Variational):
    """A layer whose weights are noisy, or whose inputs or outputs are gated, or both.

    It is mixed into a torch layer (`class Linear(NoisyLayer, nn.Linear)`). To convert a plain layer, assign this class
    to it and call `add_noise_`: the module, its ``weight`` and its ``bias`` stay the same objects.
    """

    wide_parameters: ClassVar[tuple[str, ...]] = ("log_sigma2", "log_alpha")
    draws_per_call: ClassVar[bool] = False
    """Whether all samples of a batch share one draw of the noise, because weights rather than outputs are sampled."""
    noise: Weights | Rates | None = None
    """The mode of the weights; None if only gates were added."""
    weight: Tensor
    bias: Tensor | None
    log_sigma2: nn.Parameter
    log_alpha: nn.Parameter

    @property
    def fused(self) -> bool:
        """Whether the layer and its gates may use kernels; False for the plain, twice differentiable formula."""
        return bool(self.__dict__.get("_fused", True))

    @fused.setter
    def fused(self, fused: bool) -> None:
        self.__dict__["_fused"] = fused
        for name in self.gate_names:
            for gate in own_gates(self._modules.get(name)).values():
                gate.fused = fused

    @fused.deleter
    def fused(self) -> None:
        self.fused = True
        del self.__dict__["_fused"]

    # what each kind of layer defines

    @property
    def gate_names(self) -> tuple[str, ...]:
        """The names under which the layer may have gates as submodules."""
        return (*(companion(name, "gate") for name in self.matrices), "output_gate")

    @property
    @abstractmethod
    def unit_axis(self) -> int:
        """The axis of the features that runs over units, counted from the end."""

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """The number of input units."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """The number of output units."""

    def inputs_of(self, means: Tensor) -> int:
        """The number of input units of one of the noisy parameters."""
        return self.n_inputs

    @abstractmethod
    def per_input(self, values: Tensor) -> Tensor:
        """One value per input unit, brought to a shape that broadcasts against ``weight``."""

    @abstractmethod
    def per_output(self, values: Tensor) -> Tensor:
        """One value per output unit, brought to a shape that broadcasts against ``weight``."""

    # conversion to a noisy layer and back

    def add_noise_(self, mode: Mode, *, inputs: bool = True, outputs: bool = False) -> None:
        """Add noisy weights or gates.

        Args:
            mode: `Weights`, `Rates` or `Units`.
            inputs: For `Units`: whether the inputs are gated.
            outputs: For `Units`: whether the output channels are gated.
        """
        mode = without_filters(mode)
        if isinstance(mode, Units):
            if inputs:
                self.gate = Gate(self.n_inputs, self.unit_axis, mode, self.weight).train(self.training)
            if outputs:
                self.output_gate = Gate(self.n_outputs, self.unit_axis, mode, self.weight).train(self.training)
            return
        self.noise = mode
        for name in self.matrices:
            setattr(self, self._rate_name(name), nn.Parameter(self._initial_rate(getattr(self, name))))

    def share_gate_(self, gate: SharedGate, matrix: str = "weight") -> None:
        """Gate the inputs with gates that are shared with other layers.

        Args:
            gate: The gates.
            matrix: The weight whose inputs they gate.
        """
        self.add_module(companion(matrix, "gate"), gate.train(self.training))

    def _rate_name(self, matrix: str) -> str:
        return companion(matrix, "log_sigma2" if isinstance(self.noise, Weights) else "log_alpha")

    @torch.no_grad()
    def _initial_rate(self, means: Tensor) -> Tensor:
        """The initial rates of a weight tensor; no weight starts dead, however small it is."""
        dtype = torch.promote_types(means.dtype, torch.float32)
        weight = means.to(dtype)
        if isinstance(self.noise, Weights):
            limit = self.noise.threshold - START_MARGIN - log_alpha_of(weight, torch.zeros_like(weight))
            return limit.clamp(LOWEST_LOG_SIGMA2, self.noise.log_sigma2)
        if self.noise is None:
            raise TypeError("the layer has no noisy weights.")
        # a rate for the whole layer still has an axis, since FSDP cannot shard scalars
        shape = {"weight": means.shape, "unit": (self.inputs_of(means),), "layer": (1,)}[self.noise.per]
        return torch.full(shape, self.noise.log_alpha, dtype=dtype, device=weight.device)

    @torch.no_grad()
    def make_plain_(self, threshold: float | None = None) -> None:
        """Fold masks and gates into ``weight`` and ``bias`` and remove everything variational.

        Args:
            threshold: The ``log_alpha`` at or above which weights and units are dead; None uses each one's own.
        """
        for entry in self.variational():
            self.weight.copy_(masked(self.weight, ~entry.dead(threshold)))
        for name in ("gate", "output_gate"):
            gate = getattr(self, name, None)
            if gate is None:
                continue
            values = gate.values(threshold).to(self.weight.dtype)
            self.weight.mul_(self.per_input(values) if name == "gate" else self.per_output(values))
            if name == "output_gate" and self.bias is not None:
                self.bias.mul_(values)
        self.strip_()

    def strip_(self) -> None:
        """Remove every parameter, submodule and attribute that `add_noise_` added."""
        for matrix in self.matrices:
            for kind in ("log_sigma2", "log_alpha"):
                self._parameters.pop(companion(matrix, kind), None)
            self._buffers.pop(companion(matrix, "removed"), None)
        self._buffers.pop("kl_factor", None)
        for name in self.gate_names:
            self._modules.pop(name, None)
        for name in ("noise", "_fused", "sampling", "kl_factor"):
            self.__dict__.pop(name, None)

    # what the rest of vbdrop reads

    def variational(self) -> Iterator[NoisyTensor]:
        """The noisy weights, if any; the gates are separate modules."""
        for name in self.matrices if self.noise is not None else ():
            mean, rate = getattr(self, name), getattr(self, self._rate_name(name))
            if isinstance(self.noise, Weights):
                prior, threshold = as_prior(self.noise.prior), self.noise.threshold
                yield NoisyTensor(
                    name, mean, prior, threshold, log_sigma2=rate,
                    kl_factor=self.current_kl_factor, removed=self.removed_mask_of(name),
                )  # fmt: skip
            elif isinstance(self.noise, Rates):
                prior, expand = as_prior(self.noise.prior), self._expand_rate
                yield NoisyTensor(
                    name, mean, prior, None, log_alpha=rate, expand=expand, kl_factor=self.current_kl_factor
                )

    def _bounded(self, log_alpha: Tensor) -> Tensor:
        bound = as_prior(self.noise.prior).max_log_alpha if isinstance(self.noise, Rates) else None
        return upper_bounded(log_alpha, bound)

    def _expand_rate(self, log_alpha: Tensor) -> Tensor:
        per = self.noise.per if isinstance(self.noise, Rates) else "weight"
        if per == "layer":
            return log_alpha.reshape(())
        return self.per_input(log_alpha) if per == "unit" else log_alpha

    # the forward

    def noisy_forward(self, x: Tensor, product: Product) -> Tensor:
        """Gate, product (with noise if it is on), gate; the forward of every layer calls this."""
        gate, output_gate = self._modules.get("gate"), self._modules.get("output_gate")
        out: Tensor | None = None
        if isinstance(gate, Gate | SharedGate) and self.noise is None and type(product) is MatrixProduct:
            out = gate.with_product(x, self.weight, self.bias)
        if out is None:
            out = self._product(x if gate is None else gate(x), product)
        return out if output_gate is None else output_gate(out)

    def _product(self, x: Tensor, product: Product) -> Tensor:
        """The product with the weights, with noise if it is on."""
        if isinstance(self.noise, Rates) and self.noise_is_on:
            rated = noisy_rates if self.fused else noisy_rates_reference
            return rated(x, self.weight, self._expand_rate(self._bounded(self.log_alpha)), self.bias, product)
        if not isinstance(self.noise, Weights):
            return product(x, self.weight, self.bias)
        weight, log_sigma2 = self.surviving(self.weight, self.log_sigma2)
        if self.training:
            threshold = self.noise.threshold if self.noise.mask_in_training else None
            sampled = noisy_weights if self.fused else noisy_weights_reference
            return sampled(x, weight, log_sigma2, self.bias, product, threshold)
        keep = alive(weight, log_sigma2, self.noise.threshold)
        mean = masked(weight, keep | (weight == 0))  # a mean of zero keeps its gradient, so that it can learn
        if not self.sampling:
            return product(x, mean, self.bias)
        perturbed = noisy_product if self.fused else noisy_product_reference
        return perturbed(x, mean, masked(log_sigma2.exp(), keep), self.bias, product)

    # files and printing

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:  # noqa: ANN401
        """Reset rates and gates that are missing from a plain ``state_dict``, provided it has the layer's weights."""
        has_weights = all(prefix + name in state_dict for name in self.matrices)
        rate = state_dict.get(prefix + "log_alpha")
        if isinstance(rate, Tensor) and rate.dim() == 0:  # the rate of a whole layer was a scalar in version 0.1
            state_dict[prefix + "log_alpha"] = rate.reshape(1)
        rates = {name: self._rate_name(name) for name in (self.matrices if self.noise is not None else ())}
        if not has_weights or any(prefix + rate in state_dict for rate in rates.values()):
            rates = {}
        kept = {rate: self._parameters.pop(rate) for rate in rates.values()}
        try:
            super()._load_from_state_dict(state_dict, prefix, *args)
        finally:
            self._parameters.update(kept)
        for matrix in rates:
            self._reset_rate_(matrix)
        for name in self.gate_names if has_weights else ():
            reset_missing_(self._modules.get(name), f"{prefix}{name}.", state_dict, getattr(self, self.matrices[0]))

    @torch.no_grad()
    def _reset_rate_(self, matrix: str) -> None:
        """Give a weight its initial rate, as a new parameter if the old one alone is on the meta device."""
        name = self._rate_name(matrix)
        rate, fresh = getattr(self, name), self._initial_rate(getattr(self, matrix))
        if rate.is_meta and not fresh.is_meta:
            setattr(self, name, nn.Parameter(fresh, rate.requires_grad))
        else:
            rate.copy_(fresh)

    def extra_repr(self) -> str:
        """The torch layer's own description, followed by the mode of the noise."""
        if self.noise is None:
            return super().extra_repr()
        prior = type(self.noise.prior).__name__
        return f"{super().extra_repr()}, noise={type(self.noise).__name__}({prior})"

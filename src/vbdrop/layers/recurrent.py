"""Recurrent layers with noisy weights or gates: LSTM, GRU and RNN.

The weights are drawn once per call and used for all steps and all sequences of the batch; variational RNN dropout draws
its masks once per sequence (Gal and Ghahramani 2016). The noise cannot be drawn at the output of a product, since the
next step uses the same weights again. A gate is multiplied into the weights that read its unit.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import flat_weight_names
from vbdrop.functional import alive, masked
from vbdrop.functional.local_reparameterization import posterior_reference
from vbdrop.layers.companions import companion, weight_names
from vbdrop.layers.gate import Gate
from vbdrop.layers.layer import NoisyLayer
from vbdrop.layers.modes import Mode, Units, Weights
from vbdrop.layers.recurrent_forward import cell_names, recurrent, sizes_of
from vbdrop.layers.shared_gate import SharedGate


class NoisyRecurrent(NoisyLayer, nn.RNNBase):
    """The shared part of all recurrent layers.

    Every weight matrix is noisy; biases are not. With gates, each matrix that reads units has a submodule with their
    gates, such as ``gate_hh_l0`` beside ``weight_hh_l0``; all matrices that read a unit share its gate.
    """

    draws_per_call: ClassVar[bool] = True
    bias: bool  # type: ignore[assignment]  # in a recurrent layer: whether it has biases

    @property
    def matrices(self) -> tuple[str, ...]:
        """The weights of all layers and directions."""
        return weight_names(self)

    def is_wide(self, name: str) -> bool:
        """Whether the parameter of this name sets dropout rates."""
        return name.startswith(self.wide_parameters)

    @property
    def unit_axis(self) -> int:
        """The features are the last axis."""
        return -1

    @property
    def n_inputs(self) -> int:
        """The number of features that enter the first layer."""
        return self.input_size

    @property
    def n_outputs(self) -> int:
        """The number of features that leave the last layer."""
        return sum(leaving for _, leaving in sizes_of(self)[-1 - self.bidirectional :])

    def inputs_of(self, means: Tensor) -> int:
        """The columns."""
        return means.shape[1]

    def per_input(self, values: Tensor) -> Tensor:
        """A row, since the columns of every matrix are its inputs."""
        return values.unsqueeze(0)

    def per_output(self, values: Tensor) -> Tensor:
        """A column."""
        return values.unsqueeze(1)

    def add_noise_(self, mode: Mode, *, inputs: bool = True, outputs: bool = False) -> None:
        """Add noisy weights or gates.

        Args:
            mode: `Weights`, `Rates` or `Units`.
            inputs: For `Units`: whether the inputs of the first layer are gated too.
            outputs: Ignored: the hidden units, which are the outputs, always have gates.
        """
        if not isinstance(mode, Units):
            super().add_noise_(mode)
            return
        mode = replace(mode, filter_fn=None, outputs=None)
        directions, cells = 1 + self.bidirectional, cell_names(self)
        below = {"inputs": Gate(self.input_size, -1, mode, getattr(self, cells[0][0]))} if inputs else {}
        for start in range(0, len(cells), directions):
            layer = cells[start : start + directions]
            entering, below = below, {}
            for names in layer:
                if entering:
                    self._share(names[0], entering)
                for name in names[1:]:
                    if name.startswith("weight"):
                        gate = Gate(getattr(self, name).shape[1], -1, mode, getattr(self, name))
                        self._share(name, {name.removeprefix("weight_"): gate})
                        if name.startswith("weight_hh"):
                            below[name.removeprefix("weight_")] = gate

    def _share(self, matrix: str, gates: dict[str, Gate]) -> None:
        """Gate the inputs of a matrix, in order; gates that no other matrix owns yet become its submodules."""
        taken = {id(gate) for module in self.modules() if isinstance(module, SharedGate) for gate in module.all_gates}
        own = {name: gate for name, gate in gates.items() if id(gate) not in taken}
        count = sum(gate.weight.numel() for gate in gates.values())
        self.share_gate_(SharedGate(-1, own, list(gates.values()), torch.arange(count)), matrix)

    def own_unit_gates(self) -> list[Gate]:
        """The gates of the layer's units, if no other layer shares them."""
        shared = [gate for name in self.gate_names if isinstance(gate := self._modules.get(name), SharedGate)]
        own = {id(gate) for each in shared for gate in each.own.values()}
        used = [gate for each in shared for gate in each.all_gates]
        return used if all(id(gate) in own for gate in used) else []

    @torch.no_grad()
    def make_plain_(self, threshold: float | None = None) -> None:
        """Fold masks and gates into the weights and remove everything variational.

        Args:
            threshold: The ``log_alpha`` at or above which weights and units are dead; None uses each one's own.
        """
        for entry in self.variational():
            entry.mean.copy_(masked(entry.mean, ~entry.dead(threshold)))
        for name in self.matrices:
            gate = self._modules.get(companion(name, "gate"))
            if isinstance(gate, SharedGate):
                weight = getattr(self, name)
                weight.mul_(self.per_input(gate.values(threshold).to(weight.dtype)))
        self.strip_()

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: ANN401 -- as in torch
        """The output and the final states; training draws the noise once per call."""
        names = flat_weight_names(self)
        drawn = {name: self._drawn(name) for name in self.matrices}
        return recurrent(self, [drawn[name] if name in drawn else getattr(self, name) for name in names], input, hx)

    def _drawn(self, name: str) -> Tensor:
        """The weight matrix for one call: drawn from its posterior in training, its masked mean otherwise."""
        weight: Tensor = getattr(self, name)
        if self.noise is not None:
            mean, deviation = self._posterior(name)
            if deviation is not None:
                mean = mean + (deviation * torch.randn_like(deviation)).to(mean.dtype)
            weight = mean
        gate = self._modules.get(companion(name, "gate"))
        if isinstance(gate, SharedGate):
            weight = weight * self.per_input(gate.drawn().to(weight.dtype))
        return weight

    def _posterior(self, name: str) -> tuple[Tensor, Tensor | None]:
        """The means of a weight matrix for one call, and its standard deviations; None without noise."""
        mean, rate = getattr(self, name), getattr(self, self._rate_name(name))
        if not isinstance(self.noise, Weights):
            deviation = torch.exp(0.5 * self._expand_rate(self._bounded(rate))) * mean.to(rate.dtype)
            return mean, deviation if self.noise_is_on else None
        mean, log_sigma2 = self.surviving(mean, rate, name)
        deviation = torch.exp(0.5 * log_sigma2)
        if self.training:
            threshold = self.noise.threshold if self.noise.mask_in_training else None
            return posterior_reference(mean, log_sigma2, threshold)[0], deviation
        keep = alive(mean, log_sigma2, self.noise.threshold)
        return masked(mean, keep | (mean == 0)), masked(deviation, keep) if self.sampling else None

    def flatten_parameters(self) -> None:
        """Do nothing: a call does not use the weights that cuDNN would store in one block."""


class LSTM(NoisyRecurrent, nn.LSTM):
    """`torch.nn.LSTM` after `vbdrop.convert_`.

    Example:
        >>> import vbdrop
        >>> layer = nn.LSTM(4, 3)
        >>> _ = vbdrop.convert_(layer, vbdrop.Weights())
        >>> type(layer).__name__, tuple(layer.log_sigma2_hh_l0.shape)
        ('LSTM', (12, 3))
    """


class GRU(NoisyRecurrent, nn.GRU):
    """`torch.nn.GRU` after `vbdrop.convert_`."""


class RNN(NoisyRecurrent, nn.RNN):
    """`torch.nn.RNN` after `vbdrop.convert_`."""

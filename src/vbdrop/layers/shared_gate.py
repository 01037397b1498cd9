"""The gates of a layer that are shared with the other layers that read the same channels."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.layers.gate import Gate


class SharedGate(nn.Module):
    """Multiplies a layer's inputs by gates that other layers use too; each layer draws its own noise.

    Each gate belongs to a group of channels and is a submodule of the first layer that reads the group. Several inputs
    can share one gate and its noise: all pixels of a flattened channel, or all features of a head.

    Args:
        axis: The inputs' axis, counted from the end.
        own: The gates that are submodules here, by the names of their groups.
        gates: All gates that are used here, in order.
        index: For each input, the index of its gate among all gates concatenated; -1 for an input without a gate.

    Example:
        >>> from vbdrop.layers import Units
        >>> gate = Gate(2, axis=-1, mode=Units(), like=torch.ones(1))
        >>> shared = SharedGate(-1, {"heads": gate}, [gate], torch.tensor([0, 0, 1, -1])).eval()
        >>> with torch.no_grad():
        ...     _ = gate.weight.copy_(torch.tensor([2.0, 3.0]))
        >>> shared(torch.ones(1, 4)).detach()
        tensor([[2., 2., 3., 1.]])
    """

    index: Tensor

    def __init__(self, axis: int, own: dict[str, Gate], gates: list[Gate], index: Tensor) -> None:
        super().__init__()
        self.axis = axis
        for name, gate in own.items():
            self.add_module(name, gate)
        self.__dict__["gates"] = tuple(gates)  # a tuple, so that torch does not register other layers' gates
        self.set_index_(index)

    def set_index_(self, index: Tensor) -> None:
        """Set which gate each input has."""
        count = sum(gate.weight.numel() for gate in self.all_gates)
        one_each = len(index) == count and bool((index.cpu() == torch.arange(count)).all())
        self.index = index  # not a buffer: a moving average over buffers would change the index
        self._one_gate = len(self.all_gates) == 1 and one_each
        self._all_gated = bool((index >= 0).all())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SharedGate":
        """Move the index with the parameters, except to the meta device, which would lose it."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(self.index).device
        self.index = self.index if device.type == "meta" else self.index.to(device)
        return self

    @property
    def own(self) -> dict[str, Gate]:
        """The gates that are submodules here."""
        return {name: gate for name, gate in self._modules.items() if isinstance(gate, Gate)}

    @property
    def all_gates(self) -> tuple[Gate, ...]:
        """All gates that are used here, including those of other layers."""
        gates: tuple[Gate, ...] = self.__dict__["gates"]
        return gates

    @property
    def starts(self) -> list[int]:
        """The index of the first gate of each group."""
        sizes = [gate.weight.numel() for gate in self.all_gates]
        return [sum(sizes[:i]) for i in range(len(sizes))]

    @torch.no_grad()
    def values(self, threshold: float | None = None) -> Tensor:
        """The factor of each input without noise: zero where its gate is dead."""
        return self._spread(torch.cat([gate.values(threshold) for gate in self.all_gates]))

    def with_product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        """The output of a linear layer whose inputs go through these gates, in one call; None if impossible."""
        return self.all_gates[0].with_product(x, weight, bias) if self._is_one_gate else None

    def drawn(self) -> Tensor:
        """The factor of each input for one call: one draw for all samples, or the means without noise."""
        parts = [gate.used(training=self.training) for gate in self.all_gates]
        noisy = [m if d is None else m + d * torch.randn_like(d) for m, d in parts]
        return self._spread(torch.cat(noisy))

    def forward(self, x: Tensor) -> Tensor:
        """The gated features."""
        return self.all_gates[0].gated(x, self.axis) if self._is_one_gate else x * self.factor(x)

    def factor(self, x: Tensor) -> Tensor:
        """The factor of each feature: drawn for each sample if noise is on."""
        parts = [gate.used(training=self.training) for gate in self.all_gates]
        means = torch.cat([mean for mean, _ in parts])
        trailing = [1] * (-self.axis - 1)
        if all(deviation is None for _, deviation in parts):
            return self._spread(means).view(-1, *trailing).to(x.dtype)
        samples = x.shape[: x.dim() + self.axis]
        noise = torch.randn(*samples, len(means), dtype=means.dtype, device=means.device)
        deviations = [torch.zeros_like(mean) if deviation is None else deviation for mean, deviation in parts]
        drawn = means + torch.cat(deviations) * noise
        return self._spread(drawn).reshape(*samples, -1, *trailing).to(x.dtype)

    @property
    def _is_one_gate(self) -> bool:
        """Whether the inputs are exactly the units of one gate module, in order, and both are in the same mode."""
        return self._one_gate and self.all_gates[0].training == self.training

    def _spread(self, values: Tensor) -> Tensor:
        """Values of the gates (last axis), gathered for each input; 1 for an input without a gate."""
        index = self.index.to(values.device)
        if self._all_gated:
            return values.index_select(-1, index)
        return torch.where(index >= 0, values.index_select(-1, index.clamp_min(0)), 1.0)

    def extra_repr(self) -> str:
        """The numbers of inputs and gates."""
        return f"{len(self.index)} inputs, {sum(gate.weight.numel() for gate in self.all_gates)} gates"


def own_gates(module: nn.Module | None, prefix: str = "") -> dict[str, Gate]:
    """The gates in a layer's gate module, by the prefix of their names: the module itself, or the gates it shares.

    Example:
        >>> from vbdrop.layers import Units
        >>> gate = Gate(2, axis=-1, mode=Units(), like=torch.ones(1))
        >>> list(own_gates(SharedGate(-1, {"a": gate}, [gate], torch.arange(2)), "0.gate."))
        ['0.gate.a.']
    """
    if isinstance(module, SharedGate):
        return {f"{prefix}{name}.": gate for name, gate in module.own.items()}
    return {prefix: module} if isinstance(module, Gate) else {}


def reset_missing_(module: nn.Module | None, prefix: str, state_dict: dict[str, Any], like: Tensor | None) -> None:
    """Reset the gates in a layer's gate module that a plain ``state_dict`` lacks, and add them to it.

    Args:
        module: The gate module, if there is one.
        prefix: The prefix of its names.
        state_dict: What is being loaded; torch looks there for the gates next.
        like: A parameter of the layer, already loaded: gates on the meta device move to its device. Without one they
            are left there, so that torch names them as missing.
    """
    for below, gate in own_gates(module, prefix).items():
        if any(key.startswith(below) for key in state_dict):
            continue
        if gate.weight.is_meta:
            if like is None:
                continue
            gate.to_empty(device=like.device)
        gate.reset_parameters()
        state_dict.update(gate.state_dict(prefix=below))


class Gated(nn.Module):
    """A module of another library whose inputs have gates: they are reset if a plain ``state_dict`` lacks them."""

    gate: SharedGate

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *args: Any,  # noqa: ANN401 -- as in torch
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        if _has_own_state(self, prefix, state_dict, local_metadata):
            like = next(self.parameters(recurse=False), None)
            reset_missing_(self.gate, f"{prefix}gate.", state_dict, like)


def _has_own_state(module: nn.Module, prefix: str, state_dict: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """Whether a ``state_dict`` is of a model with this module: it has all of its own parameters.

    A module without parameters must be named in the metadata, where torch notes the version of each module; otherwise a
    part of a model would look like the whole of a plain one.

    Example:
        >>> norm = nn.LayerNorm(2)
        >>> _has_own_state(norm, "0.", {"0.weight": 1, "0.bias": 1}, {}), _has_own_state(norm, "0.", {}, {})
        (True, False)
    """
    names = [name for name, parameter in module._parameters.items() if parameter is not None]
    return all(prefix + name in state_dict for name in names) if names else "version" in metadata

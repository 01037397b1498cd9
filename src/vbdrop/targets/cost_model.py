"""The cost of every noisy weight and gate in the unit of a target, and the size at any cut: fast and approximate.

`SizeCounter` is exact and takes tens of milliseconds. The controller asks every few steps, so it uses this model: the
products of the graph, with the units that they read and write, and which of them are alive.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop.layers import Gate, GatedNorm, NoisyLayer
from vbdrop.layers.companions import companion
from vbdrop.targets.layer_times import LayerTimes
from vbdrop.targets.prunable import prunables
from vbdrop.targets.sizes import SizeCounter, size_in
from vbdrop.targets.stopwatch import Timing
from vbdrop.targets.target import Unit

NO_TIME = LayerTimes([], [1], [[0.0]], (1, 1))
"""The times of a product whose layer was not timed."""


@dataclass
class _Product:
    """A weight with its input and output units, and their gates."""

    weight: str
    per_pair: float
    """Multiply-adds, or parameters, between one input and one output."""
    groups: int
    inputs: Tensor
    outputs: Tensor
    transposed: bool = False
    noisy: int | None = None
    gates: tuple[int, ...] = ()
    """The noisy tensors that gate the inputs, one after the other."""
    index: Tensor | None = None
    """For each input, the index of its gate among all of them; -1 for an input without a gate."""
    output_gate: int | None = None
    times: LayerTimes | None = None
    """The measured times of the layer, for a target that is a time."""

    def dense(self, n_inputs: float, n_outputs: float) -> float:
        """The cost with this many inputs and outputs and no zeros."""
        if self.times is not None:
            return self.times(n_inputs, n_outputs)
        return self.per_pair * n_inputs * n_outputs / self.groups

    def slopes(self, n_inputs: float, n_outputs: float) -> tuple[float, float]:
        """What removing one input, and one output, would save."""
        if self.times is not None:
            return self.times.slopes(n_inputs, n_outputs)
        return self.per_pair * n_outputs / self.groups, self.per_pair * n_inputs / self.groups


@dataclass
class _Norm:
    """A normalisation over channels with gates: a unit whose gate is dead here is dead everywhere."""

    units: Tensor
    gates: tuple[int, ...]
    index: Tensor


class CostModel:
    """The size of a model in one unit, as a function of what is dead.

    Args:
        model: A converted model in its original shape.
        counter: The exact counter of the same model.
        unit: What is counted.
        timing: The measured times, for ``"latency"``. Sizes are then seconds: the layers' times, calibrated by a line
            through the measured times of the whole model and of the smallest one.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Units())
        >>> costs = CostModel(model, SizeCounter(model, (torch.zeros(1, 4),)), "macs")
        >>> costs.size([torch.tensor([True] * 4), torch.tensor([True, False, True])])
        12.0
        >>> [cost.tolist() for cost in costs.savings([torch.tensor([True] * 4), torch.tensor([True] * 3)])]
        [[3.0, 3.0, 3.0, 3.0], [6.0, 6.0, 6.0]]
    """

    def __init__(self, model: nn.Module, counter: SizeCounter, unit: Unit, timing: Timing | None = None) -> None:
        self.unit, self._timing = unit, timing
        roots = counter.facts.units.roots()
        self._n_units = len(roots)
        entries = {id(found.entry.rate): index for index, found in enumerate(prunables(model))}
        modules = dict(model.named_modules(remove_duplicate=False))
        self._products = []
        seen: set[str] = set()
        for site in counter.facts.products:
            if site.weight in seen or site.weight not in counter.counted:
                continue
            seen.add(site.weight)
            path, _, matrix = site.weight.rpartition(".")
            module, numel = modules[path], counter.facts.tensor_size(site.weight)
            pairs = site.groups * (len(site.inputs) // site.groups) * (len(site.outputs) // site.groups)
            uses = counter.positions.get(site.weight, 0) if unit == "macs" else 1
            product = _Product(
                site.weight,
                uses * numel / pairs,
                site.groups,
                roots[site.inputs.units],
                roots[site.outputs.units],
                site.transposed,
                times=None if timing is None else timing.layers.get(site.weight, NO_TIME),
            )
            if isinstance(module, NoisyLayer):
                gate, output_gate = (module._modules.get(n) for n in (companion(matrix, "gate"), "output_gate"))
                product.gates, product.index = _gates_of(gate, entries, len(site.inputs))
                product.output_gate = entries.get(id(output_gate.log_sigma2)) if isinstance(output_gate, Gate) else None
                own = next((entry for entry in module.variational() if entry.name == matrix), None)
                product.noisy = None if own is None else entries.get(id(own.rate))
            self._products.append(product)
        self._norms = _norms_of(model, counter, roots, entries)
        read = torch.zeros(self._n_units, dtype=torch.bool)
        for product in self._products:
            read[product.inputs] = True
        self._held = ~read  # the network's outputs, and inputs of unknown operations
        for pinned in counter.facts.pinned:
            self._held[roots[pinned]] = True
        self._rest, self._scale = 0.0, 1.0
        everything = [torch.ones(found.entry.mean.shape, dtype=torch.bool) for found in prunables(model)]
        if timing is None:
            self._rest = max(0.0, size_in(counter.before, unit) - self.size(everything))  # biases, normalization
        else:
            self._rest, self._scale = timing.line

    def _reads(self, product: _Product, alive: Sequence[Tensor]) -> Tensor:
        """Which inputs a product reads: those whose gate and at least one weight are alive."""
        reads = torch.ones(len(product.inputs), dtype=torch.bool)
        if product.index is not None:
            gates = torch.cat([alive[gate] for gate in product.gates])
            reads = gates[product.index.clamp_min(0)] | (product.index < 0)
        if (weights := self._weights(product, alive)) is not None:
            reads = reads & weights.any(0)
        return reads

    def _weights(self, product: _Product, alive: Sequence[Tensor]) -> Tensor | None:
        """The number of live weights between each output and each input, [outputs, inputs]; None if all are alive."""
        if product.noisy is None or product.groups > 1:
            return None
        mask = alive[product.noisy]
        mask = mask.flatten(2).sum(2) if mask.dim() > 2 else mask
        return mask.t() if product.transposed else mask

    def _units_alive(self, alive: Sequence[Tensor]) -> Tensor:
        """A unit is alive if something reads it, and its own gate is alive."""
        units = self._held.clone()
        for product in self._products:
            units[product.inputs[self._reads(product, alive)]] = True
        for product in self._products:
            if product.output_gate is not None:
                units[product.outputs[~alive[product.output_gate]]] = False
        for norm in self._norms:
            gates = torch.cat([alive[gate] for gate in norm.gates])
            units[norm.units[(norm.index >= 0) & ~gates[norm.index.clamp_min(0)]]] = False
        return units

    def _sides(self, product: _Product, alive: Sequence[Tensor], units: Tensor) -> tuple[float, float]:
        inputs = units[product.inputs] & self._reads(product, alive)
        return float(inputs.sum()), float(units[product.outputs].sum())

    def size(self, alive: Sequence[Tensor]) -> float:
        """The size if these elements are alive: one boolean tensor per noisy tensor, in the order of `prunables`."""
        units = self._units_alive(alive)
        return self._rest + self._scale * sum(self._size_of(product, alive, units) for product in self._products)

    def _size_of(self, product: _Product, alive: Sequence[Tensor], units: Tensor) -> float:
        n_inputs, n_outputs = self._sides(product, alive, units)
        dense = product.dense(n_inputs, n_outputs)
        if self.unit not in ("weights", "bytes"):
            return dense
        nonzero = dense
        if (weights := self._weights(product, alive)) is not None:
            nonzero = float((weights.sum(1) * units[product.outputs]).sum())
        elif product.noisy is not None:
            nonzero = min(dense, float(alive[product.noisy].sum()))
        return nonzero if self.unit == "weights" else min(4 * dense, dense / 8 + 4 * nonzero)

    def savings(self, alive: Sequence[Tensor]) -> list[Tensor]:
        """What removing each element saves at present: one tensor per noisy tensor, in the target's unit."""
        units = self._units_alive(alive)
        found = [torch.zeros(element.shape, dtype=torch.float64) for element in alive]
        readers = torch.zeros(self._n_units, dtype=torch.float64)
        writers = torch.zeros(self._n_units, dtype=torch.float64)
        streams = torch.zeros(self._n_units, dtype=torch.float64)
        for product in self._products:
            n_inputs, n_outputs = self._sides(product, alive, units)
            if product.noisy is not None:
                found[product.noisy].fill_(1.0)
            per_input, per_output = product.slopes(n_inputs, n_outputs)
            reads = torch.full((len(product.inputs),), per_input, dtype=torch.float64)
            _add_to_gates(found, product, reads)
            if product.index is None:  # its inputs have their gates in a norm, or none at all
                streams.index_add_(0, product.inputs, reads)
            readers.index_add_(0, product.inputs, self._reads(product, alive).double())
            writers.index_add_(0, product.outputs, torch.full((len(product.outputs),), per_output, dtype=torch.float64))
            if product.output_gate is not None:
                found[product.output_gate] += per_output
        for product in self._products:
            _add_to_gates(found, product, (writers / readers.clamp_min(1.0))[product.inputs])
        self._add_streams(found, writers + streams)
        return found

    def _add_streams(self, found: list[Tensor], behind: Tensor) -> None:
        """Add the cost of all layers that write or read a stream to the stream's gates; each gate counts once."""
        done = set[tuple[int, int]]()
        for norm in self._norms:
            starts = [sum(found[gate].numel() for gate in norm.gates[:i]) for i in range(len(norm.gates))]
            for unit, number in zip(norm.units.tolist(), norm.index.tolist(), strict=True):
                at = max((i for i, start in enumerate(starts) if start <= number), default=None)
                if at is not None and (norm.gates[at], number - starts[at]) not in done:
                    done.add((norm.gates[at], number - starts[at]))
                    found[norm.gates[at]].view(-1)[number - starts[at]] += float(behind[unit])


def _norms_of(model: nn.Module, counter: SizeCounter, roots: Tensor, entries: dict[int, int]) -> list[_Norm]:
    """The normalisations with gates, with the units of their channels."""
    found = []
    for path, module in model.named_modules():
        if isinstance(module, GatedNorm):
            name, (gates, index) = f"{path}.scale".lstrip("."), _gates_of(module.gate, entries, 0)
            units = next((each.units for each in counter.facts.followers if each.name == name), None)
            if units is not None and index is not None:
                found.append(_Norm(roots[units], gates, index))
    return found


def press_by_cost_(model: nn.Module, costs: CostModel) -> None:
    """Weight the KL of each gate by the cost of its channel, with factors of mean 1, in place.

    Args:
        model: A converted model; single noisy weights, which all cost the same, are left alone.
        costs: What each gate costs.
    """
    found = prunables(model)
    savings = costs.savings([one.alive() for one in found])
    gates = [(one.module, saving) for one, saving in zip(found, savings, strict=True) if isinstance(one.module, Gate)]
    total = sum(float(saving.sum()) for _, saving in gates)
    if total > 0:
        mean = total / sum(saving.numel() for _, saving in gates)
        for gate, saving in gates:
            gate.kl_factor = float(saving.mean()) / mean


def _gates_of(gate: object, entries: dict[int, int], n_inputs: int) -> tuple[tuple[int, ...], Tensor | None]:
    """The gates of a layer's inputs: its own, or those that it shares with other layers that read the same channels."""
    modules: tuple[object, ...] = getattr(gate, "all_gates", (gate,))
    if not all(isinstance(module, Gate) and id(module.log_sigma2) in entries for module in modules):
        return (), None
    numbers = tuple(entries[id(module.log_sigma2)] for module in modules if isinstance(module, Gate))
    index = getattr(gate, "index", None)
    return numbers, torch.arange(n_inputs) if index is None else index.cpu()


def _add_to_gates(found: list[Tensor], product: _Product, per_input: Tensor) -> None:
    """Add what each input costs to its gate."""
    if product.index is None:
        return
    sizes = [found[gate].numel() for gate in product.gates]
    total = torch.zeros(sum(sizes), dtype=torch.float64)
    gated = product.index >= 0
    total.index_add_(0, product.index[gated], per_input[gated])
    for gate, part in zip(product.gates, torch.split(total, sizes), strict=True):
        found[gate] += part

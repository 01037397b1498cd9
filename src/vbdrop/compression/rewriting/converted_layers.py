"""What a plan means for the variances, rates and gates of a converted layer, besides its weight and bias."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vbdrop.compression.planning.plan import Cut, Merge, Plan
from vbdrop.compression.rewriting.slicing import merged
from vbdrop.functional import masked
from vbdrop.layers import Gate, GatedAttention, GatedNorm, NoisyLayer, SharedGate, Variational
from vbdrop.layers.companions import companion
from vbdrop.layers.layer import LOWEST_LOG_SIGMA2, START_MARGIN
from vbdrop.priors import log_alpha_of


def is_bayesian(model: nn.Module) -> bool:
    """Whether any module of a model was converted."""
    return any(isinstance(module, Variational) for module in model.modules())


def companions(plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Cut]:
    """The cuts of the tensors that belong to the weights of converted layers.

    Variances follow the weight; gates, and rates per input unit, follow its inputs or outputs.
    """
    cuts: dict[str, Cut] = {}
    for weight in plan.positions.keys() & plan.shapes.keys():
        inputs, outputs = plan.kept_inputs(weight), plan.kept_outputs(weight)
        for name in ("weight", "log_sigma2", "removed"):
            cuts[f"{companion(weight, 'gate')}.{name}"] = {} if inputs is None else {0: inputs}
            cuts[f"{companion(weight, 'output_gate')}.{name}"] = {} if outputs is None else {0: outputs}
        for rate in (companion(weight, "log_sigma2"), companion(weight, "log_alpha")):
            shape = tensors[rate].shape if rate in tensors else ()
            by_unit = {} if inputs is None or shape == (1,) else {0: inputs}  # a single rate for the whole layer
            cuts[rate] = plan.keep.get(weight, {}) if len(shape) > 1 else by_unit
        cuts[companion(weight, "removed")] = plan.keep.get(weight, {})
    return {name: cut for name, cut in cuts.items() if cut and name in tensors}


class SharedCuts(NamedTuple):
    """What a plan means for gates that several layers share.

    Attributes:
        cuts: Gate parameter -> the indices that are kept, because some layer still reads them.
        indices: Shared gate -> its index afterwards, which assigns a gate to each input.
    """

    cuts: dict[str, Cut]
    indices: dict[SharedGate, Tensor]


def shared_cuts(plan: Plan, model: nn.Module) -> SharedCuts:
    """The cuts of shared gates, and the new indices with which the layers find the gates that are kept.

    Args:
        plan: The plan.
        model: The converted model, before the plan is applied.
    """
    readers: dict[SharedGate, Tensor] = {}
    for path, layer in model.named_modules():
        if isinstance(layer, GatedNorm):
            kept = plan.keep.get(f"{path}.scale".lstrip("."), {}).get(0)
            readers[layer.gate] = layer.gate.index if kept is None else layer.gate.index[kept]
        if isinstance(layer, GatedAttention):
            weight = f"{path}.in_proj_weight".lstrip(".")
            kept = plan.kept_inputs(weight) if weight in plan.shapes else None
            readers[layer.gate] = layer.gate.index if kept is None else layer.gate.index[kept]
        for matrix in layer.matrices if isinstance(layer, NoisyLayer) else ():
            if isinstance(shared := layer._modules.get(companion(matrix, "gate")), SharedGate):
                weight = f"{path}.{matrix}" if path else matrix
                kept = plan.kept_inputs(weight) if weight in plan.shapes else None
                readers[shared] = shared.index if kept is None else shared.index[kept]
    used: dict[Gate, Tensor] = {}
    for shared, index in readers.items():
        for gate, start in zip(shared.all_gates, shared.starts, strict=True):
            own = index[(index >= start) & (index < start + gate.weight.numel())] - start
            mask = used.setdefault(gate, torch.zeros_like(gate.weight, dtype=torch.bool))
            mask[own] = True
    names = {module: name for name, module in model.named_modules()}
    cuts: dict[str, Cut] = {}
    for gate, mask in used.items():
        mask[0] |= not bool(mask.any())
        if not bool(mask.all()):
            kept = mask.nonzero().flatten().tolist()
            fields = ["weight", "log_sigma2"] + ["removed"] * (gate.removed_mask is not None)
            cuts.update({f"{names[gate]}.{field}": {0: kept} for field in fields})
    indices = {}
    for shared, index in readers.items():
        before = torch.cat([used[gate] for gate in shared.all_gates])
        indices[shared] = torch.where(index >= 0, before.cumsum(0)[index.clamp_min(0)] - 1, index)
    return SharedCuts(cuts, indices)


def merged_noisy(layer: NoisyLayer, merges: list[Merge]) -> dict[str, Tensor]:
    """The weight and the variances of a converted layer after merging its constant inputs.

    The carrier's weights must be alive to carry anything: their variances are bounded as in a new layer, and weights
    that were removed for good are restored.
    """
    scale = layer.per_input(_gate_values(layer).double())
    weight = layer.weight.detach().double()
    effective = weight * scale
    entry = next(layer.variational(), None)
    if entry is not None:
        effective = masked(effective, ~entry.dead())
    carriers = torch.zeros_like(weight, dtype=torch.bool)
    for merge in merges:
        rows = slice(*merge.rows)
        carriers[(merge.into, rows) if merge.axis == 0 else (rows, merge.into)] = True
    changed = torch.where(carriers, merged(effective, merges) / scale, weight)
    result = {"weight": changed.to(layer.weight.dtype)}
    if entry is not None and entry.log_sigma2 is not None and entry.threshold is not None:
        limit = entry.threshold - START_MARGIN - log_alpha_of(changed, torch.zeros_like(changed))
        alive = torch.minimum(entry.log_sigma2.double(), limit).clamp(min=LOWEST_LOG_SIGMA2)
        bounded = torch.where(carriers & (changed != 0), alive, entry.log_sigma2)
        result["log_sigma2"] = bounded.to(entry.log_sigma2.dtype)
        if entry.removed is not None:
            result["removed"] = entry.removed & ~(carriers & (changed != 0))
    return result


def _gate_values(layer: NoisyLayer) -> Tensor:
    """The factors of the layer's input gates in eval mode."""
    gate = getattr(layer, "gate", None)
    if not isinstance(gate, Gate | SharedGate):
        return torch.ones(layer.n_inputs, device=layer.weight.device)
    return gate.values().detach()

"""Which modules of a model can be converted, and why the others cannot."""

from collections import Counter
from collections.abc import Iterator

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from vbdrop._torch_compat import LazyModuleMixin
from vbdrop.layers import LAYERS, GatedProduct, NoisyLayer, OpenAttention, Rates, Units, Variational, Weights
from vbdrop.layers.attention import why_closed
from vbdrop.layers.companions import weight_names
from vbdrop.layers.computed_weight import base_of, computed_weight
from vbdrop.layers.modes import Mode

LOOKED_UP = "its rows are looked up, not multiplied; Units gates its features where they are read"

REASONS: dict[type[nn.Module], str] = {
    nn.Embedding: LOOKED_UP,
    nn.EmbeddingBag: "it sums rows that it looks up, and channels cannot be followed through that",
    nn.Bilinear: "it multiplies two inputs, so noise on one product cannot represent noisy weights",
}
"""Why modules of some kinds are never converted."""


def candidates(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module that holds parameters of its own, once, except those that vbdrop added."""
    for name, module in model.named_modules():
        is_own_gate = isinstance(module, Variational) and not isinstance(module, NoisyLayer)
        inside_parametrization = ".parametrizations." in f".{name}."
        has_weights = any(p is not None for p in module._parameters.values()) or is_parametrized(module)
        if has_weights and not is_own_gate and not inside_parametrization:
            yield name, module


class Survey:
    """Collects what must be known about a whole model to judge one of its modules.

    Args:
        model: The model.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        >>> survey = Survey(model)
        >>> [survey.why_left(module) for module in model]
        [None, 'no noisy layer for LayerNorm']
    """

    def __init__(self, model: nn.Module) -> None:
        holders = Counter(id(p) for m in model.modules() for p in m._parameters.values() if p is not None)
        self._tied = {key for key, count in holders.items() if count > 1}
        found = [module for module in model.modules() if isinstance(module, nn.MultiheadAttention)]
        attentions = [module for module in found if not isinstance(module, OpenAttention)]
        self._closed = {id(part): why_closed(attention) for attention in attentions for part in attention.modules()}

    def why_left(self, module: nn.Module) -> str | None:
        """The reason why a module cannot be converted in any mode (or back), or None if it can."""
        kind = type(module).__name__
        if id(module) in self._closed:
            return self._closed[id(module)] or "MultiheadAttention uses its weights functionally"
        if isinstance(module, OpenAttention):
            return "its heads have their gates in out_proj"
        if is_parametrized(module):
            return "its parameters are parametrized; parametrize.remove_parametrizations of torch makes them plain"
        if isinstance(module, LazyModuleMixin):
            return f"{kind} has no weights yet; run one forward first"
        is_known = type(module) in LAYERS or type(module) in LAYERS.values() or isinstance(module, GatedProduct)
        if not is_known and computed_weight(module) is None:
            if isinstance(module, tuple(LAYERS)):
                return _subclass(module)
            return REASONS.get(type(module), f"no noisy layer for {kind}")
        for name in weight_names(module):
            weight = module._parameters.get(name)
            if weight is None:
                return "its weight is not a plain parameter"
            if not weight.is_floating_point():
                return f"its weight is {weight.dtype}"
        if any(id(p) in self._tied for p in module._parameters.values()):
            return "its parameters are shared with another module"
        return None


def _subclass(module: nn.Module) -> str:
    kind = type(module).plain if isinstance(module, GatedProduct) else type(module)
    return f"{kind.__name__} is a subclass that may compute something else; vbdrop.register_layer can add it"


def why_not_again(module: nn.Module, mode: Mode) -> str | None:
    """The reason why a module that is already noisy cannot take this mode too, or None if it can."""
    if isinstance(mode, Units):
        gates = module.gate_names if isinstance(module, NoisyLayer) else ()
        return "already has gates" if any(name in module._modules for name in gates) else None
    if isinstance(module, GatedProduct) or base_of(module) is not None:
        return _subclass(module)
    noise = getattr(module, "noise", None) if isinstance(module, NoisyLayer) else None
    return f"already converted with {type(noise).__name__}" if isinstance(noise, Weights | Rates) else None

"""The modules of a model that normalise over channels and can still count channels that were removed."""

from dataclasses import dataclass

from torch import fx, nn

from vbdrop.analysis.graph import Traced, is_tensor, size_of
from vbdrop.layers.counted_norm import CountedNorm, kind_of


@dataclass(frozen=True)
class NormSite:
    """A module that is a layer or RMS normalisation, or a group normalisation with one group.

    Attributes:
        path: Its dotted name.
        kind: Its formula, one of `vbdrop.layers.counted_norm.KINDS`.
        count: The number of channels that it counts.
        from_end: Their axis in its input, counted from the end.
    """

    path: str
    kind: str
    count: int
    from_end: int


def module_path(node: fx.Node) -> str:
    """The dotted name of the innermost module that an operation comes from."""
    stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return next((path for path in reversed(stack) if path and not path.startswith("_empty")), "")


def norm_site(traced: Traced, model: nn.Module, node: fx.Node) -> NormSite | None:
    """The module that an operation comes from, if the whole module is a normalisation over channels.

    Args:
        traced: The graph.
        model: The traced model, or one of the same structure with other weights.
        node: An operation that reads all input channels of the module.

    Example:
        >>> import torch
        >>> from vbdrop.analysis.graph import trace
        >>> model = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4)).eval()
        >>> traced = trace(model, (torch.zeros(3, 2),))
        >>> norm_site(traced, model, next(node for node in traced.graph.nodes if "layer_norm" in node.name))
        NormSite(path='1', kind='layer', count=4, from_end=1)
    """
    path = module_path(node)
    source = _entering(traced, path) if path else None
    if source is None:
        return None
    module, size = model.get_submodule(path), size_of(source)
    if isinstance(module, CountedNorm):
        kind = kind_of(module, module.count)
        return None if kind is None else NormSite(path, kind, module.count, module.from_end)
    for from_end in dict.fromkeys((1, 3 if len(size) > 3 else 1, max(len(size) - 1, 1))):
        count = size[len(size) - from_end]
        kind = kind_of(module, count, from_end)
        if kind is not None:
            return NormSite(path, kind, count, from_end)
    return None


def entering(traced: Traced, node: fx.Node) -> fx.Node | None:
    """The tensor that enters the module call of an operation; None if several do, or none does."""
    found = _entries(traced, module_path(node)).get(_call(node), [])
    return found[0] if len(found) == 1 else None


def _entering(traced: Traced, path: str) -> fx.Node | None:
    """The tensor that enters a module at its first call; None if several enter it at one call, or none does."""
    calls = list(_entries(traced, path).values())
    return calls[0][0] if calls and all(len(found) == 1 for found in calls) else None


def _entries(traced: Traced, path: str) -> dict[tuple[str, ...], list[fx.Node]]:
    """The tensors that enter a module, by call."""
    calls: dict[tuple[str, ...], dict[fx.Node, None]] = {}
    for node in traced.graph.nodes:
        if module_path(node) == path:
            sources = [source for source in node.all_input_nodes if is_tensor(source) and source not in traced.names]
            found = calls.setdefault(_call(node), {})
            found.update(dict.fromkeys(source for source in sources if _call(source) != _call(node)))
    return {call: list(found) for call, found in calls.items()}


def _call(node: fx.Node) -> tuple[str, ...]:
    """The module call that an operation comes from; two calls of one module are distinct."""
    return tuple(node.meta.get("nn_module_stack") or ())

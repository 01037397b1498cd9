"""Modules that a plan replaces before it cuts, and the numbers with which it describes them.

They are normalisations that count removed channels, torch attentions with separate projections, and layers that
computed their own weight.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from vbdrop.analysis.layer_shapes import owner
from vbdrop.compression.planning.plan import Plan
from vbdrop.convert.fast_path import NESTED, has_lost_nested_tensors
from vbdrop.layers import CountedNorm, GatedNorm, OpenAttention
from vbdrop.layers.attention import open_
from vbdrop.layers.computed_weight import (
    MARK,
    GatedProduct,
    base_of,
    become_noisy_product_,
    can_be_product,
    is_still_product,
    make_product_,
)
from vbdrop.layers.counted_norm import CENTRING, KINDS, check_epsilon, count_, kind_of
from vbdrop.layers.gated_norm import gated_class

NUMBERS = ("count", "from_end", "formula", "scaled")
"""How a plan describes such a norm: the channels to count, their axis, the formula by its position in `KINDS`, and the
number of channels that it scales first, 0 for none."""


def counted_as(kind: str, count: int, from_end: int, scaled: int = 0) -> dict[str, int]:
    """The numbers of a norm, as a plan stores them."""
    return dict(zip(NUMBERS, (count, from_end, list(KINDS).index(kind), scaled), strict=True))


def note_replaced(plan: Plan, model: nn.Module) -> None:
    """Record the modules that were replaced in a model in a plan, so that they are replaced in a fresh model too.

    These are counted norms, opened attentions (by the number of their heads), layers that have lost the class that
    computed their weight, and encoders that no longer use nested tensors.

    Example:
        >>> plan = Plan()
        >>> note_replaced(plan, nn.Sequential(count_(nn.LayerNorm(2), "layer", 3)))
        >>> plan.attributes
        {'0': {'count': 3, 'from_end': 1, 'formula': 0, 'scaled': 0}}
    """
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, CountedNorm):
            kind, scaled = kind_of(module, module.count), 0 if module.scale is None else len(module.scale)
            plan.attributes.setdefault(path, counted_as(str(kind), module.count, module.from_end, scaled))
        elif MARK in module.__dict__:
            plan.attributes.setdefault(path, {})[MARK] = 1
        elif isinstance(module, OpenAttention):
            plan.attributes.setdefault(path, {}).setdefault("num_heads", module.num_heads)
        elif has_lost_nested_tensors(module):
            plan.attributes.setdefault(path, {})[NESTED] = 0


def with_own_classes(plan: Plan, model: nn.Module) -> tuple[Plan, set[str]]:
    """A plan in which layers keep their class if nothing in them is cut or folded.

    Args:
        plan: A plan with all layers that have lost the class that computed their weight.
        model: The given model; a layer with gates must lose its class.

    Returns:
        The plan, and the names of these layers.
    """
    removed = [] if plan.program is None else plan.program.removed
    changed = {owner(name) for name in (*plan.keep, *plan.add, *plan.merge, *removed)}
    marked = {path: model.get_submodule(path) for path, numbers in plan.attributes.items() if MARK in numbers}
    own = {
        path
        for path, module in marked.items()
        if path not in changed and base_of(module) is not None and not isinstance(module, GatedProduct)
    }
    attributes = {path: numbers for path, numbers in plan.attributes.items() if path not in own}
    return replace(plan, attributes=attributes), own


def counted_norms(plan: Plan) -> dict[str, dict[str, int]]:
    """The counted norms of a plan, with their numbers."""
    return {path: numbers for path, numbers in plan.attributes.items() if "count" in numbers}


def scale_bytes(plan: Plan) -> int:
    """The most bytes of the tensors that norms get when they become counted: a scale, and perhaps a weight."""
    return 2 * 8 * sum(numbers.get("scaled", 0) for numbers in counted_norms(plan).values())


def made_by_replacing(plan: Plan, tensors: Mapping[str, Tensor]) -> set[str]:
    """The tensors of a plan that a fresh model lacks, since its norms are not counted norms yet."""
    names = {f"{path}.{name}".lstrip(".") for path in counted_norms(plan) for name in ("scale", "weight")}
    return names & plan.shapes.keys() - tensors.keys()


def replace_modules_(plan: Plan, model: nn.Module) -> None:
    """Replace the modules of a model as a plan says, in place; modules that are already replaced are not changed.

    A norm becomes a counted one; in a converted norm, the gates take the place of the scale. A torch attention whose
    heads the plan names is opened, and a layer that computes its own weight becomes the torch layer.

    Raises:
        ValueError: If a module is not a normalisation that can be counted, counts a different number, or is not a layer
            that computes a product; nothing is changed then.
    """
    _check_replaceable(plan, model)
    for path, numbers in plan.attributes.items():
        module = model.get_submodule(path)
        if MARK in numbers and isinstance(module, GatedProduct):
            become_noisy_product_(module)
        elif MARK in numbers and MARK not in module.__dict__:
            make_product_(module)
        if "num_heads" in numbers and type(module) is nn.MultiheadAttention and plan.program is None:
            open_(module)
    for path, numbers in counted_norms(plan).items():
        module, kind = model.get_submodule(path), list(KINDS)[numbers["formula"]]
        if isinstance(module, CountedNorm):
            continue
        if isinstance(module, GatedNorm):
            plain = type(module).plain
            module.__class__ = plain  # type: ignore[assignment]  # temporarily
            count_(module, kind, numbers["count"], numbers["from_end"])
            module.__class__ = gated_class(type(module))
            continue
        counted = count_(module, kind, numbers["count"], numbers["from_end"])
        if numbers["scaled"]:
            parameters = (*counted.parameters(recurse=False), *model.parameters())
            like = next((p for p in parameters if p.is_floating_point()), torch.empty(0))
            ones = torch.ones(numbers["scaled"], dtype=like.dtype, device=like.device)
            counted.scale = nn.Parameter(ones, like.requires_grad)
            if kind in CENTRING and counted.weight is None:
                counted.weight = nn.Parameter(ones.clone(), like.requires_grad)


def _check_replaceable(plan: Plan, model: nn.Module) -> None:
    """Check all modules that a plan replaces before the first one is replaced."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for path, numbers in plan.attributes.items():
        if path not in modules:
            raise ValueError(f"`target` must be what the plan was made for, with a module {path!r}; it has none.")
        if MARK in numbers and not _is_product(modules[path]):
            kind = type(modules[path]).__name__
            raise ValueError(f"the layer {path!r} must compute a product with its inputs; got a {kind}.")
    for path, numbers in counted_norms(plan).items():
        module = modules[path]
        if numbers["formula"] >= len(KINDS):
            raise ValueError(f"the norm {path!r} must have one of {len(KINDS)} formulas; got {numbers['formula']}.")
        if isinstance(module, CountedNorm) and module.count != numbers["count"]:
            raise ValueError(f"the norm {path!r} must count {numbers['count']} channels; got {module.count}.")
        check_epsilon(module, list(KINDS)[numbers["formula"]])


def _is_product(module: nn.Module) -> bool:
    """Whether a module is or can become a torch layer with the weight that it computes."""
    if isinstance(module, GatedProduct):
        return is_still_product(module)
    return MARK in module.__dict__ or can_be_product(module)

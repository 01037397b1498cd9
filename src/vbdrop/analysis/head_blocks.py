"""The heads of an attention and their features: features die one by one, and all heads keep equally many."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from vbdrop.analysis.channels import Channels, Grid, Stack, UnitSets
from vbdrop.analysis.graph import size_of
from vbdrop.layers import OpenAttention

if TYPE_CHECKING:
    from vbdrop.analysis.channel_facts import ChannelFacts

FLATTENING = ("view", "reshape", "_unsafe_view")
"""Operations after which heads and features may share one axis."""

PASSING = (
    *(*FLATTENING, "expand", "permute", "transpose", "unsqueeze", "squeeze", "slice", "unbind", "select"),
    *("clone", "alias", "detach", "contiguous", "dropout", "_to_copy", "to", "mul", "div", "sym_size"),
    *("getitem", "scaled_dot_product_attention", "matmul", "bmm"),
)
"""Operations that may read heads that have lost different features."""


@dataclass(frozen=True)
class HeadBlock:
    """The heads of a query, key or value, and the features of each head.

    Attributes:
        path: The dotted name of the attention module.
        heads: The unit of each head.
        members: The unit of each feature, [heads, features].
        read: For queries and keys, which features are read if the head is live; None for values, whose readers come
            after the attention and need the head.
    """

    path: str
    heads: Tensor
    members: Tensor
    read: Tensor | None

    def whole(self, units: UnitSets) -> None:
        """Tie the features of each head, so that heads die only as a whole."""
        units.tie(self.heads.repeat_interleave(self.members.shape[1]), self.members.flatten())


def rows(known: object, axes: tuple[int, int], node: fx.Node) -> Channels | Grid | None:
    """The known facts about a value if its heads and features lie on these axes; a single head needs no axis.

    Args:
        known: The facts.
        axes: The axes of the heads and of the features.
        node: The value.
    """
    if isinstance(known, Grid) and known.axes == tuple(sorted(axes)) and axes[0] < axes[1]:
        return known
    is_single = isinstance(known, Channels) and known.axis == axes[1] and size_of(node)[axes[0]] == 1
    return known if is_single and isinstance(known, Channels) else None


def by_head(field: Tensor) -> Tensor:
    """One number per feature, as [heads, features]."""
    return field if field.dim() > 1 else field.unsqueeze(0)


def settle(facts: "ChannelFacts") -> list[Tensor]:
    """Tie the features of heads that can only die as a whole, and return the others, which must be balanced.

    A head can lose single features if every value that has them is a grid whose last axis runs over the features of a
    head, and if all operations that read the grid allow it. If the forward is not replaced, the queries, keys and
    values of a module must lose equally many features, since it views them with the same size, unless the module is an
    `OpenAttention`.

    Args:
        facts: The forward pass, after its last operation.

    Returns:
        Units of features, [heads, features] each; all heads that are kept need equally many of them.
    """
    blocks = list(facts.blocks)
    while spoiled := list(_spoiled(facts, blocks)):
        for block in spoiled:
            block.whole(facts.units)
        blocks = [block for block in blocks if all(block is not other for other in spoiled)]
    facts.blocks[:] = blocks
    together: dict[tuple[object, int], list[Tensor]] = {}
    for number, block in enumerate(blocks):
        place: object = number if takes_any_size(facts, block.path) else block.path
        together.setdefault((place, block.members.shape[1]), []).append(block.members)
    grids = [grid.units.flatten(0, -2) for _, grid in _grids(facts) if grid.units.dim() > 2 and stays(blocks, grid)]
    return [*(torch.cat(members) for members in together.values()), *grids]


def takes_any_size(facts: "ChannelFacts", path: str) -> bool:
    """Whether the values of a module may keep a different number of features than its queries and keys."""
    return facts.rewrite or isinstance(facts.model.get_submodule(path), OpenAttention)


def stays(blocks: Iterable[HeadBlock], grid: Grid) -> bool:
    """Whether a grid consists of heads with features that may die one by one."""
    return _heads_in(grid.units) <= _all_heads(blocks)


def _heads_in(units: Tensor) -> set[tuple[int, ...]]:
    return {tuple(row) for row in units.flatten(0, -2).tolist()} if units.dim() > 1 else set()


def _all_heads(blocks: Iterable[HeadBlock]) -> set[tuple[int, ...]]:
    return {row for block in blocks for row in _heads_in(block.members)}


def _grids(facts: "ChannelFacts") -> Iterator[tuple[fx.Node, Grid]]:
    """All grids of the graph."""
    for node, known in facts.by_node.items():
        for part in known if isinstance(known, list) else [known]:
            if isinstance(part, Grid):
                yield node, part


def _spoiled(facts: "ChannelFacts", blocks: list[HeadBlock]) -> Iterator[HeadBlock]:
    """The blocks whose heads can only die as a whole."""
    heads = _all_heads(blocks)
    bad = set[int]()
    for node, grid in _grids(facts):
        is_good = _heads_in(grid.units) <= heads and all(_passes(facts, user, grid, heads) for user in node.users)
        bad |= set() if is_good else set(grid.units.flatten().tolist())
    touched = [bool(bad.intersection(block.members.flatten().tolist())) for block in blocks]
    paths = {block.path for block, is_bad in zip(blocks, touched, strict=True) if is_bad} | facts.whole_heads
    paths = {path for path in paths if not takes_any_size(facts, path)}
    for block, is_bad in zip(blocks, touched, strict=True):
        if is_bad or block.path in paths:
            yield block


def _passes(facts: "ChannelFacts", user: fx.Node, grid: Grid, heads: set[tuple[int, ...]]) -> bool:
    """Whether an operation can read heads that have lost different features."""
    name = getattr(getattr(user.target, "overloadpacket", user.target), "__name__", None)
    if name not in PASSING:
        return False
    known = facts.by_node.get(user)
    return all(_follows(part, name, grid, heads) for part in (known if isinstance(known, list) else [known]))


def _follows(known: Channels | Grid | Stack | None, name: str | None, grid: Grid, heads: set[tuple[int, ...]]) -> bool:
    """Whether the result of an operation on a grid has the features of whole heads, in their order."""
    if isinstance(known, Grid):
        whole = name != "slice" or known.units.shape == grid.units.shape  # a slice of the positions
        return whole and _heads_in(known.units) <= heads
    if name in FLATTENING and isinstance(known, Channels):
        return _heads_in(known.units.view(-1, grid.units.shape[-1])) <= heads
    return name in ("scaled_dot_product_attention", "matmul", "bmm", "sym_size")

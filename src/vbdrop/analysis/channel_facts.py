"""The facts that the forward pass over the graph collects; the rules write into them."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from vbdrop.analysis.channels import Channels, Grid, Stack, UnitSets
from vbdrop.analysis.graph import Traced
from vbdrop.analysis.head_blocks import HeadBlock
from vbdrop.analysis.layer_shapes import beside, owner, shape_of
from vbdrop.analysis.norm_sites import NormSite, entering, module_path, norm_site
from vbdrop.layers import OpenAttention
from vbdrop.layers.companions import companion

Facts = Channels | Grid | Stack | list[Channels | Grid | Stack | None] | None
"""What is known about a node's value: its channels, those of each tensor in a list, or nothing."""

SPELLS_OUT = (nn.MultiheadAttention, nn.RNNBase)
"""Modules whose own forward checks or hard-codes the sizes of their weights."""

WORTH_A_COPY = 0.05
"""Selecting channels, or adding to only some of them, costs a copy; it must remove at least this share of them."""


@dataclass(frozen=True)
class ProductSite:
    """A linear layer or a convolution at one place in the graph.

    Attributes:
        node: The operation.
        source: Its input.
        weight: The name of its weight.
        bias: The name of its bias, or None.
        inputs: The input channels.
        outputs: The output channels.
        transposed: Whether the weight's first axis runs over inputs.
        folds: Whether a spatially uniform input channel has a uniform effect, so that it can be folded into a bias.
        takes_bias: Whether the operation can take a bias.
        nonzero: [groups, outputs, inputs]: whether an output reads an input at all.
        total: [groups, outputs, inputs]: the sum of the weights between them, in float64.
        selects: Whether it can read a subset of its input channels, through a selection inserted before it.
    """

    node: fx.Node
    source: fx.Node
    weight: str
    bias: str | None
    inputs: Channels
    outputs: Channels
    transposed: bool
    folds: bool
    takes_bias: bool
    nonzero: Tensor
    total: Tensor
    selects: bool = True

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.nonzero.shape[0]


@dataclass(frozen=True)
class RecurrentSite:
    """A recurrent layer at one place in the graph.

    Attributes:
        path: The dotted name of the module.
        source: Its input.
        hidden: The hidden units of each layer and direction.
        leaving: The output units of each layer and direction.
        whole: Whether the module's forward consists of this operation alone.
    """

    path: str
    source: fx.Node
    hidden: list[Channels]
    leaving: list[Channels]
    whole: bool


@dataclass(frozen=True)
class Follower:
    """A tensor with an axis along the channels of some value, such as the scale of a batch normalisation."""

    node: fx.Node
    name: str
    axis: int
    units: Tensor


@dataclass(frozen=True)
class Scatter:
    """A sum with a term that may have fewer channels than the result; it is added to those channels only.

    Attributes:
        node: The addition.
        parts: The terms that may be smaller, with their channels.
        base: The other term, which has all channels of the result; None if both may be smaller.
        outputs: The channels of the result.
    """

    node: fx.Node
    parts: dict[fx.Node, Channels]
    base: fx.Node | None
    outputs: Channels


@dataclass
class ChannelFacts:
    """The state of the forward pass, and its result.

    Attributes:
        traced: The graph.
        model: The model that was traced, or one of the same structure with other weights.
        rewrite: Whether the forward may be replaced; if not, a channel is removed only if the forward stays valid.
        frozen_shapes: Whether sizes that are hard-coded in the forward must stay too.
        split_heads: Whether the features of a head may be removed one by one.
        units: The units.
        by_node: What is known about each node's value.
        products: Linear layers and convolutions, in order.
        followers: Tensors that follow a channel axis.
        scatters: Sums with a smaller term.
        counted: Norms and means over channels, which need the original number of channels.
        group_norms: Group normalisations.
        recurrent: Recurrent layers.
        initial_states: The operations that create the initial states of a recurrent layer.
        projections: Recurrent layers with projections: their hidden units and their (fewer) output units.
        unstacked: The operations that select one layer and direction from the states of a recurrent layer.
        other_writers: The weights of embeddings and bilinear layers, which write channels but are not products with
            one input, and the units that they write.
        attributes: Module -> attribute -> the channels that it counts, for modules with several inputs.
        blocks: Heads whose features may be removed one by one.
        even: Units of features, [heads, features] each; all heads that are kept need equally many of them.
        whole_heads: Attention modules whose heads can only be removed as a whole.
        pinned: Units that are kept whether or not anything reads them.
        kept_for: The pinned units that are kept because of an operation, and the reason.
        frozen: Parameters that are also used in unknown ways and therefore keep their shape.
        left: Place -> why channels that might have been removed are kept there, or cannot be followed.
        settled: Whether the forward pass is over, so that no more units are tied.
    """

    traced: Traced
    model: nn.Module
    rewrite: bool = True
    frozen_shapes: bool = False
    split_heads: bool = False
    units: UnitSets = field(default_factory=UnitSets)
    by_node: dict[fx.Node, Facts] = field(default_factory=dict)
    products: list[ProductSite] = field(default_factory=list)
    followers: list[Follower] = field(default_factory=list)
    scatters: list[Scatter] = field(default_factory=list)
    counted: dict[fx.Node, Channels] = field(default_factory=dict)
    group_norms: dict[fx.Node, Channels] = field(default_factory=dict)
    recurrent: dict[fx.Node, RecurrentSite] = field(default_factory=dict)
    initial_states: set[fx.Node] = field(default_factory=set)
    projections: list[tuple[fx.Node, Channels, Channels]] = field(default_factory=list)
    unstacked: set[fx.Node] = field(default_factory=set)
    other_writers: dict[str, Tensor] = field(default_factory=dict)
    attributes: dict[str, dict[str, Channels]] = field(default_factory=dict)
    blocks: list[HeadBlock] = field(default_factory=list)
    even: list[Tensor] = field(default_factory=list)
    whole_heads: set[str] = field(default_factory=set)
    pinned: list[Tensor] = field(default_factory=list)
    kept_for: list[tuple[Tensor, str]] = field(default_factory=list)
    frozen: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)
    settled: bool = False

    def __post_init__(self) -> None:
        self._tensors: dict[str, Tensor] = dict(self.model.named_parameters(remove_duplicate=False))
        self._tensors.update(self.model.named_buffers(remove_duplicate=False))
        self._aliases: dict[int, list[str]] = {}
        for name, tensor in self._tensors.items():
            self._aliases.setdefault(id(tensor), []).append(name)
        self._ties: dict[tuple[str, int | str], Tensor] = {}
        self._norm_sites: dict[str, NormSite | None] = {}

    # queries for the rules

    def channels(self, node: Any) -> Channels | None:  # noqa: ANN401 -- an argument can be anything
        """The channels of a value, if it is a tensor and they are known; a grid is turned into its longest axis.

        After the forward pass, a remaining grid stays a grid: its heads may lose different features.
        """
        found = self.by_node.get(node) if isinstance(node, fx.Node) else None
        if isinstance(found, Grid) and not self.settled:
            return self.channels_along(node, found.longest)
        return found if isinstance(found, Channels) else None

    def channels_along(self, node: fx.Node, axis: int) -> Channels | None:
        """The channels of a node's value if they lie, or can lie, on this axis; a grid is fixed to this axis."""
        found = self.by_node.get(node)
        if isinstance(found, Grid) and axis in found.axes:
            found = self.by_node[node] = found.along(axis, self.units)
        return found if isinstance(found, Channels) and found.axis == axis else None

    def name(self, node: Any) -> str | None:  # noqa: ANN401
        """The dotted name of the parameter or buffer that this node stands for."""
        return self.traced.names.get(node) if isinstance(node, fx.Node) else None

    def tensor(self, node: Any) -> Tensor | None:  # noqa: ANN401
        """The parameter or buffer that this node stands for, on the CPU and in float64."""
        name = self.name(node)
        return None if name is None or name not in self._tensors else self.named(name)

    def named(self, name: str) -> Tensor:
        """The parameter or buffer of this name, on the CPU and in float64."""
        return self._tensors[name].detach().to("cpu", torch.float64)

    def whole_numbers(self, name: str) -> Tensor | None:
        """The buffer of this name, if it holds whole numbers."""
        found = self._tensors.get(name)
        return None if found is None or found.is_floating_point() else found.detach()

    def shape(self, name: str) -> list[int]:
        """The shape of a parameter or buffer."""
        return list(self._tensors[name].shape)

    def dims(self, name: str) -> int:
        """The number of axes of a parameter or buffer."""
        return self._tensors[name].dim()

    def tensor_size(self, name: str) -> int:
        """The number of elements of a parameter or buffer."""
        return self._tensors[name].numel()

    def aliases(self, name: str) -> list[str]:
        """All dotted names of this parameter: more than one if it is tied or its module appears twice."""
        return self._aliases[id(self._tensors[name])] if name in self._tensors else [name]

    def has_own_bias(self, weight: str, bias: str | None) -> bool:
        """Whether a weight belongs to one module and is used with that module's bias, if it has one.

        A module without a bias can be given one named ``bias`` if the weight is named ``weight``.
        """
        aliases, own = self.aliases(weight), companion(weight, "bias")
        module = self.model.get_submodule(owner(weight))
        if any(self.model.get_submodule(owner(alias)) is not module for alias in aliases):
            return False
        if own in self._tensors:
            return bias in self.aliases(own)
        is_free = getattr(module, "bias", None) is None
        return bias is None and is_free and all(alias == beside(alias, "weight") for alias in aliases)

    def why_fixed(self, *parameters: Any) -> str | None:  # noqa: ANN401
        """Why the tensors of these nodes cannot change their shape, or None if they can."""
        names = [self.name(node) for node in parameters if node is not None]
        if not names or None in names:
            return "its weight is computed in the forward"
        if self.rewrite:
            return None
        aliases = [alias for name in names if name is not None for alias in self.aliases(name)]
        for module in [self.model.get_submodule(owner(alias)) for alias in aliases]:
            spells_out = isinstance(module, SPELLS_OUT) and not isinstance(module, OpenAttention)
            if shape_of(module) is None and (self.frozen_shapes or spells_out):
                return f"{type(module).__name__} uses its weights directly"
        return None

    # actions for the rules

    def tie_tensor(self, name: str, axis: int | str, units: Tensor) -> None:
        """Record the units along an axis of a tensor; if it is used twice, the units of both uses are tied."""
        known = self._ties.setdefault((self.aliases(name)[0], axis), units)
        if known is not units:
            self.units.tie(known, units)

    def units_along(self, name: str, axis: int) -> Tensor:
        """The units along an axis of a tensor: the recorded ones, or new ones."""
        key = (self.aliases(name)[0], axis)
        if key not in self._ties:
            self._ties[key] = self.units.new(self._tensors[name].shape[axis])
        return self._ties[key]

    def pin(self, channels: Channels) -> None:
        """Keep all of these channels."""
        self.pinned.append(channels.units)

    def through(self, node: fx.Node) -> Channels | None:
        """What is known about the value of a node for which no rule gives a result: nothing."""
        return None

    def pinned_channels(self, axis: int, count: int) -> Channels:
        """New channels, all of them kept, for a value whose channels are unknown."""
        channels = Channels.varying(axis, self.units.new(count))
        self.pin(channels)
        return channels

    def keep(self, node: fx.Node, reason: str, *, report: bool = True) -> None:
        """Keep all channels that enter a node.

        Args:
            node: The node.
            reason: Why.
            report: Whether to always report it; otherwise it is reported only if it keeps a weight matrix, or a
                constant channel that could have been removed.
        """
        for source in node.all_input_nodes:
            channels = self.channels(source)
            if channels is not None:
                self.pin(channels)
                self.kept_for.append((channels.units, reason))
                report_it = report or bool(channels.known.any())
            else:
                name = self.name(source)
                report_it = name in self._tensors and self._tensors[name].dim() > 1
            if report_it:
                self.left.setdefault(self.place(node), reason)

    def counts(self, node: fx.Node) -> bool:
        """Whether a norm or mean can take fewer channels and still count all of them.

        A generated forward stores the count in its operations; if the original forward is kept, the module must store
        it.
        """
        return self.rewrite or (self.keeps_modules and self.norm_site(node) is not None)

    def summed(self, node: fx.Node, channels: Channels) -> Channels:
        """The channels that a norm or mean counts: those that enter the module, if the module stores the count.

        Inside the module, a channel that entered as zero can have another value, such as minus the mean.

        Args:
            node: An operation over channels for which `counts` is true.
            channels: The channels that it reads.
        """
        source = entering(self.traced, node) if self.keeps_modules else None
        return (None if source is None else self.channels(source)) or channels

    @property
    def keeps_modules(self) -> bool:
        """Whether the forward calls whole modules instead of their individual operations."""
        return not self.rewrite and not self.frozen_shapes

    def need_all(self, node: fx.Node, units: Tensor, reason: str) -> None:
        """Keep the units that a norm or mean over channels reads."""
        self.pinned.append(units)
        self.kept_for.append((units, reason))

    def norm_site(self, node: fx.Node) -> NormSite | None:
        """The normalisation module that an operation belongs to, if there is one."""
        path = self.module_path(node)
        if path not in self._norm_sites:
            self._norm_sites[path] = norm_site(self.traced, self.model, node)
        return self._norm_sites[path]

    def module_path(self, node: fx.Node) -> str:
        """The dotted name of the innermost module that an operation comes from."""
        return module_path(node)

    def place(self, node: fx.Node) -> str:
        """Where in the model a node comes from, in readable form."""
        path = self.module_path(node)
        return f"{path} ({node.name})" if path else node.name

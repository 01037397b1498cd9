"""The graph of the small model while it is being written."""

import re
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, fx, nn

from vbdrop._torch_compat import ConvNd, OpOverload, has_forward_hooks
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, concrete, is_tensor
from vbdrop.analysis.layer_shapes import BATCH_NORMS, COUNTS, HEAD_SIZES, owner
from vbdrop.analysis.liveness import Liveness
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.plan_from_liveness import Columns
from vbdrop.compression.rewriting.program import ProgramError
from vbdrop.layers import OpenAttention

OPERATIONS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("linear",),
    nn.Conv1d: ("conv1d",),
    nn.Conv2d: ("conv2d",),
    nn.Conv3d: ("conv3d",),
    nn.ConvTranspose1d: ("conv_transpose1d",),
    nn.ConvTranspose2d: ("conv_transpose2d",),
    nn.ConvTranspose3d: ("conv_transpose3d",),
    **dict.fromkeys(BATCH_NORMS, ("_native_batch_norm_legit_no_training", "_native_batch_norm_legit")),
    nn.PReLU: ("prelu",),
    nn.Embedding: ("embedding",),
    nn.LayerNorm: ("layer_norm",),
    nn.GroupNorm: ("group_norm",),
}
"""The modules that the new graph can call, by exact type -> the operation of which their forward can consist."""

TENSORS = ("weight", "bias", "running_mean", "running_var")
"""The tensors of these modules; their operations have arguments of the same names."""


class Writer:
    """A new graph and the state needed to write it.

    Attributes:
        liveness: Which units are kept.
        inputs: The inputs that each weight keeps.
        plan: The rest of the plan.
        graph: The new graph.
        values: Old node -> new node.
        buffers: The tensors that the graph needs besides those of the model, by name.
        new_sizes: Whether a size that is a number in the traced forward has changed.
        new_operations: Whether anything else differs, so that the original forward cannot be valid.
    """

    def __init__(self, liveness: Liveness, inputs: dict[str, Columns], plan: Plan) -> None:
        self.liveness = liveness
        self.inputs = inputs
        self.plan = plan
        self.facts = liveness.facts
        self.graph = fx.Graph()
        self.values: dict[fx.Node, fx.Node] = {}
        self.buffers: dict[str, Tensor] = {}
        self.new_sizes = False
        self.new_operations = False

    def value(self, node: fx.Node) -> fx.Node:
        """The new node for an old one; parameters and constants are fetched on first use.

        Raises:
            ProgramError: If the node is a graph.
        """
        if node not in self.values:
            name = self.facts.traced.names.get(node)
            if name is None:
                raise ProgramError(f"it has a graph of its own inside, {node.target}, as of torch.cond")
            constant = self.facts.traced.constants.get(name)
            self.values[node] = (
                self.graph.get_attr(name) if constant is None else self.buffer(name, self._cut(name, constant))
            )
        return self.values[node]

    def _cut(self, name: str, constant: Tensor) -> Tensor:
        """The rest of a constant, such as a non-persistent buffer, after a cut along the channels that it follows."""
        for axis, units in {f.axis: f.units for f in self.facts.followers if f.name == name}.items():
            kept = self.liveness.present[self.liveness.root[units]].nonzero().flatten()
            constant = constant.index_select(axis, kept.to(constant.device))
        return constant

    def buffer(self, name: str, tensor: Tensor) -> fx.Node:
        """Add a tensor under this or a similar name of letters, digits and underscores that the model does not have."""
        name = re.sub(r"\W", "_", name, flags=re.ASCII)
        while name in self.buffers or hasattr(self.facts.model, name):
            name += "_"
        self.buffers[name] = tensor
        # the module has no such buffer until the graph is applied
        return self.graph.create_node("get_attr", name)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:  # noqa: ANN401 -- an operation, its arguments
        """Add an operation."""
        return self.graph.call_function(target, args, kwargs)

    def copy(self, node: fx.Node) -> fx.Node:
        """Copy an operation onto the new values, as a module call if it is the forward of a module."""
        path = self.module_of(node)
        if path is not None:
            source = next(source for source in node.all_input_nodes if self.facts.name(source) is None)
            return self.graph.create_node("call_module", path, (self.value(source),))
        return self.graph.node_copy(node, self.value)

    def kept(self, channels: Channels) -> Tensor:
        """Which of these channels are kept."""
        return self.liveness.kept(channels)

    def select(self, value: fx.Node, axis: int, positions: Tensor, name: str) -> fx.Node:
        """Select channels of a value."""
        self.new_operations = True
        return self.call(torch.ops.aten.index_select.default, value, axis, self.buffer(name, positions))

    def respell(self, node: fx.Node, before: int, after: int, names: Collection[str] = COUNTS) -> None:
        """Record that a hard-coded size changes; if the module has it as an attribute, the plan sets that.

        Args:
            node: The operation.
            before: The old size.
            after: The new size.
            names: The attributes that may hold it.
        """
        self.new_sizes = True
        path = self.facts.module_path(node)
        module = self.facts.model.get_submodule(path)
        for name in names:
            if type(number := getattr(module, name, None)) is int and number == before:
                self.plan.attributes.setdefault(path, {})[name] = after

    def respell_grid(self, node: fx.Node, grid: Grid) -> dict[int, int]:
        """Record the sizes of a view of heads and their features, and return the new size of each axis."""
        sizes = dict(zip(grid.axes, self.liveness.kept_along(grid), strict=True))
        opened = isinstance(self.facts.model.get_submodule(self.facts.module_path(node)), OpenAttention)
        for axis, before in zip(grid.axes, grid.units.shape, strict=True):
            if sizes[axis] != before:
                features = axis == grid.axes[-1]  # an opened attention reads them from its weights
                names = COUNTS if not features else () if opened else HEAD_SIZES
                self.respell(node, before, sizes[axis], names)
        return sizes

    def module_of(self, node: fx.Node) -> str | None:
        """The module whose forward consists of this operation alone, or None if there is none."""
        names = {self.facts.name(source) for source in node.all_input_nodes} - {None}
        others = [source for source in node.all_input_nodes if self.facts.name(source) is None]
        paths = {owner(name) for name in names if name is not None}
        if len(paths) != 1 or len(others) != 1 or not is_tensor(others[0]):
            return None
        (path,) = paths
        module = self.facts.model.get_submodule(path)
        hooked = has_forward_hooks(module)  # the effect of hooks was traced and is in the graph
        if not path or hooked or not _is_operation_of(module, node):
            return None
        call = arguments_of(node)
        given = {name: self.facts.name(call[name]) for name in TENSORS if call.get(name) is not None}
        own = {name: f"{path}.{name}" for name in TENSORS if getattr(module, name, None) is not None}
        return path if given == own and _same_call(module, node) else None


def _is_operation_of(module: nn.Module, node: fx.Node) -> bool:
    """Whether a module's forward can consist of this operation."""
    if not isinstance(node.target, OpOverload):
        return False
    return node.target.overloadpacket.__name__ in OPERATIONS.get(type(module), ())


def _same_call(module: nn.Module, node: fx.Node) -> bool:
    """Whether the module's settings match the traced call."""
    call = arguments_of(node)
    if not isinstance(module, ConvNd):
        return all(concrete(call[name]) == getattr(module, name) for name in ("eps", "num_groups") if name in call)
    if call["groups"] != module.groups:
        return False
    dims = len(module.kernel_size)
    names = ["stride", "padding", "dilation"] + ["output_padding"] * module.transposed
    # a convolution with another padding mode pads its input first, and the traced call has no padding
    return all(_spread(call[name], dims) == _spread(getattr(module, name), dims) for name in names)


def _spread(value: Any, dims: int) -> Any:  # noqa: ANN401 -- a number, one for each dimension, or a word
    found = concrete(value)
    if isinstance(found, int):
        return [found] * dims
    return found * dims if isinstance(found, list) and len(found) == 1 else found

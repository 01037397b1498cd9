"""The private PyTorch APIs that vbdrop uses, collected here because they may change between versions."""

import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.export import ExportedProgram
from torch.export import exported_program as exported_program_module
from torch.nn.modules.batchnorm import _BatchNorm as BatchNormNd
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.module import _has_any_global_hook
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

Function = TypeVar("Function", bound=Callable[..., Any])

_exported_program: Any = exported_program_module

rnn_functions: Any = torch._VF
"""The module in which torch's sequence packing looks up its functions."""

causal_detection: tuple[Any, str] = (nn.modules.transformer, "_detect_is_causal_mask")
"""The module and name of the function with which torch's transformers detect a causal mask."""

__all__ = [
    "BatchNormNd",
    "ConvNd",
    "ConvTransposeNd",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "LazyModuleMixin",
    "OpOverload",
    "TorchDispatchMode",
    "autocast_is_on",
    "causal_detection",
    "constant_result",
    "default_store",
    "detached_activations",
    "flat_weight_names",
    "forward_mode_is_on",
    "functional_program",
    "has_forward_hooks",
    "has_global_hooks",
    "holds",
    "inner_schedulers",
    "is_sharded",
    "keep_in_copies_",
    "local_shard",
    "output_padding",
    "pytree",
    "rnn_functions",
    "schema_of",
    "shard_like",
    "state_dict_hooks",
    "storage_id",
    "transforms_are_on",
    "unwrapped",
    "whole_copy",
    "whole_tensor",
]


def constant_result(function: Function) -> Function:
    """Mark a function whose result `torch.compile` may treat as a constant.

    `torch.compiler.assume_constant_result` does the same, but imports the compiler, which takes longer than importing
    torch itself.

    Example:
        >>> constant_result(lambda: 3)()
        3
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def functional_program(program: ExportedProgram) -> ExportedProgram:
    """Return an exported program without in-place writes; its operations are not decomposed.

    `run_decompositions` first prepares each of the several hundred composite operations that torch knows, which takes
    longer than the work itself for a small model. Here it prepares only those that occur.

    Example:
        >>> program = torch.export.export(nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True)), (torch.ones(2),))
        >>> [node.name for node in functional_program(program).graph.nodes if node.op == "call_function"]
        ['linear', 'relu']
    """
    from torch._export import (
        utils,  # imported here, since it loads the compiler, which takes longer to import than torch itself
    )

    listed = getattr(_exported_program, "_collect_all_valid_cia_ops", None)
    preservable = getattr(utils, "_is_preservable_cia_op", None)
    if listed is not None and preservable is not None:  # private names that another version may lack
        targets = {node.target for node in program.graph.nodes if isinstance(node.target, OpOverload)}
        kept = {target for target in targets if preservable(target)}
        _exported_program._collect_all_valid_cia_ops = lambda: kept
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch's own, about its own code
            functional: ExportedProgram = program.run_decompositions({})
    finally:
        if listed is not None:
            _exported_program._collect_all_valid_cia_ops = listed
    return functional


def holds(condition: Any, sizes: Mapping[Any, int]) -> bool:  # noqa: ANN401 -- an expression of sympy
    """Whether a condition on sizes that torch recorded in a trace is true for these sizes.

    Args:
        condition: The condition.
        sizes: The size that each symbol stands for.

    Raises:
        TypeError: If the sizes do not determine the condition.

    Example:
        >>> import sympy
        >>> size = sympy.Symbol("s0", integer=True)
        >>> holds(size * 2 < 9, {size: 4}), holds(size * 2 < 9, {size: 5})
        (True, False)
    """
    import sympy  # type: ignore[import-untyped]  # imported here: it is slow, and only a trace needs it

    numbers = {symbol: sympy.Integer(size) for symbol, size in sizes.items()}
    return bool(condition.xreplace(numbers))  # ten times as fast as `subs`, which tries to be clever


def autocast_is_on() -> bool:
    """Whether autocast is on for any kind of device.

    Example:
        >>> with torch.autocast("cpu", torch.bfloat16):
        ...     autocast_is_on()
        True
    """
    return bool(torch._C._is_any_autocast_enabled())


@constant_result
def transforms_are_on() -> bool:
    """Whether a transform of `torch.func` (vmap, grad, jvp) or forward-mode differentiation is active.

    Example:
        >>> found = []
        >>> _ = torch.func.vmap(lambda x: found.append(transforms_are_on()) or x)(torch.ones(2))
        >>> found, transforms_are_on()
        ([True], False)
    """
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


@constant_result
def forward_mode_is_on() -> bool:
    """Whether forward-mode differentiation (`torch.func.jvp`, dual numbers) is active.

    Example:
        >>> forward_mode_is_on()
        False
    """
    return forward_ad._current_level >= 0


def has_global_hooks() -> bool:
    """Whether any global module hook is registered.

    Example:
        >>> has_global_hooks()
        False
    """
    return bool(_has_any_global_hook())  # type: ignore[no-untyped-call]


def local_shard(tensor: Tensor) -> Tensor:
    """This process's shard of a ``DTensor``; any other tensor is returned unchanged.

    Example:
        >>> tensor = torch.ones(2)
        >>> local_shard(tensor) is tensor
        True
    """
    distributed: Any = sys.modules.get("torch.distributed.tensor")  # imported if there is a DTensor; a slow import
    if distributed is None or not isinstance(tensor, distributed.DTensor):
        return tensor
    local: Tensor = tensor.to_local()
    return local


def whole_tensor(tensor: Tensor) -> Tensor:
    """Gather a ``DTensor``, for which all of its processes must call this; return any other tensor unchanged.

    Example:
        >>> tensor = torch.ones(2)
        >>> whole_tensor(tensor) is tensor
        True
    """
    if local_shard(tensor) is tensor:
        return tensor
    distributed: Any = tensor
    whole: Tensor = distributed.full_tensor()
    return whole


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's shard of a whole tensor, split like ``like``; all of it if ``like`` is not a ``DTensor``.

    Args:
        tensor: A tensor that every process has, with the shape of ``like``.
        like: The tensor whose distribution is followed.

    Example:
        >>> tensor = torch.ones(2)
        >>> shard_like(tensor, like=torch.zeros(2)) is tensor
        True
    """
    if local_shard(like) is like:
        return tensor
    from torch.distributed.tensor import distribute_tensor  # already imported: `like` is a DTensor

    how: Any = like
    return local_shard(distribute_tensor(tensor, how.device_mesh, how.placements, src_data_rank=None))


def is_sharded(model: nn.Module) -> bool:
    """Whether any parameter of a model is distributed over processes (a ``DTensor``), for example by ``fully_shard``.

    Example:
        >>> is_sharded(nn.Linear(2, 2))
        False
    """
    return any(local_shard(parameter) is not parameter for parameter in model.parameters())


def detached_activations(model: nn.Module) -> dict[int, Any]:
    """A memo for `copy.deepcopy` with which activations that modules keep are copied without their graph.

    Such a tensor belongs to the autograd graph of the last forward, and torch refuses to copy it.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> model.last = model(torch.zeros(1, 2))
        >>> copy.deepcopy(model, detached_activations(model)).last.grad_fn is None
        True
    """
    leaves = [leaf for module in model.modules() for leaf in pytree.tree_leaves(dict(vars(module)))]
    return {id(leaf): leaf.detach().clone() for leaf in leaves if isinstance(leaf, Tensor) and not leaf.is_leaf}


def whole_copy(model: nn.Module) -> nn.Module:
    """A deep copy with whole parameters, gathered where ``fully_shard`` has distributed them over processes.

    All of these processes must call it, and each gets a copy. Activations that a module keeps are detached.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> whole_copy(model) is model
        False
    """
    memo = detached_activations(model)
    if not is_sharded(model):
        return copy.deepcopy(model, memo)
    for parameter in model.parameters():
        if local_shard(parameter) is not parameter:
            whole = whole_tensor(parameter.detach()).clone()  # with one process it is the parameter's own memory
            memo[id(parameter)] = nn.Parameter(whole, requires_grad=parameter.requires_grad)
    # fully_shard gives a module a class that cannot be copied, and attributes and hooks that refer to its shards
    sharded = [module for module in model.modules() if hasattr(type(module), "_orig_cls_mro_index")]
    for module in sharded:
        changed: Any = type(module)
        original = changed.__mro__[changed._orig_cls_mro_index]
        memo[id(module)] = original.__new__(original)
    for module in sharded:
        kept = {name: value for name, value in vars(module).items() if not name.startswith("__composable_api")}
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            hooks = kept[name].items()
            kept[name] = type(kept[name])((key, hook) for key, hook in hooks if not _is_of_fsdp(hook))
        vars(memo[id(module)]).update(copy.deepcopy(kept, memo))
    found: nn.Module = copy.deepcopy(model, memo)
    return found


def _is_of_fsdp(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.fsdp")


def unwrapped(model: nn.Module) -> nn.Module:
    """Unwrap `torch.nn.parallel.DistributedDataParallel` and compiled models; return any other model unchanged.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> unwrapped(torch.compile(model, backend="eager")) is model, unwrapped(model) is model
        (True, True)
    """
    while True:
        wrapped = isinstance(model, nn.parallel.DistributedDataParallel)
        inner = model.module if wrapped else getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def schema_of(operation: Any) -> torch.FunctionSchema:  # noqa: ANN401 -- an `OpOverload`, or a target of a graph
    """The schema of an ATen operation: its name, its arguments and their defaults.

    Example:
        >>> schema_of(torch.ops.aten.relu.default).name
        'aten::relu'
    """
    schema: torch.FunctionSchema = operation._schema
    return schema


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether forward hooks or pre-hooks, except our own that say ``only_observes``, are registered on a module itself.

    Example:
        >>> has_forward_hooks(nn.Linear(2, 2))
        False
    """
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(not getattr(hook, "only_observes", False) for hook in hooks)


def state_dict_hooks(module: nn.Module) -> tuple[dict[int, Any], dict[int, Any]]:
    """The hooks that run before a module gives its ``state_dict``, and before it loads one, each by its key.

    Example:
        >>> state_dict_hooks(nn.Linear(2, 2))
        (OrderedDict(), OrderedDict())
    """
    return module._state_dict_pre_hooks, module._load_state_dict_pre_hooks


def output_padding(layer: ConvTransposeNd, x: Tensor, output_size: list[int] | None) -> list[int]:
    """The padding with which a transposed convolution reaches the requested output size.

    Example:
        >>> layer = nn.ConvTranspose1d(1, 1, kernel_size=3, stride=2)
        >>> output_padding(layer, torch.ones(1, 1, 4), [10])
        [1]
    """
    stride, kernel, dilation = list(layer.stride), list(layer.kernel_size), list(layer.dilation)
    padding = [int(size) for size in layer.padding]  # never a string: this is a transposed convolution
    return list(layer._output_padding(x, output_size, stride, padding, kernel, len(kernel), dilation))


def flat_weight_names(module: nn.RNNBase) -> list[str]:
    """The names of a recurrent module's parameters, in the order that the kernels expect.

    Example:
        >>> flat_weight_names(nn.LSTM(2, 3))[:2]
        ['weight_ih_l0', 'weight_hh_l0']
    """
    return list(module._flat_weights_names)


def storage_id(storage: torch.UntypedStorage) -> int:
    """A number that no other storage has while this one is alive.

    Example:
        >>> tensor = torch.ones(2)
        >>> storage_id(tensor.untyped_storage()) == storage_id(tensor.view(1, 2).untyped_storage())
        True
    """
    return int(storage._cdata)


def keep_in_copies_(module: fx.GraphModule, attach: Callable[[fx.GraphModule], None]) -> None:
    """Call a function on every deep copy of a traced module, since a copy loses the hooks of the original."""
    module._register_deepcopy_hook(attach)


def inner_schedulers(scheduler: object) -> Iterable[object]:
    """The learning-rate schedulers inside a combined one such as `torch.optim.lr_scheduler.SequentialLR`.

    Example:
        >>> inner_schedulers(object())
        ()
    """
    return tuple(getattr(scheduler, "_schedulers", ()))


def default_store() -> Any:  # noqa: ANN401 -- a `torch.distributed.Store`, where torch has it
    """The key-value store through which the processes of the default group found each other."""
    return torch.distributed.distributed_c10d._get_default_store()

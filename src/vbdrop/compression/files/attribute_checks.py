"""Check the numbers of units that modules keep as attributes, since a file may contain anything."""

from collections.abc import Iterator

from torch import nn

from vbdrop._torch_compat import ConvNd, flat_weight_names
from vbdrop.analysis.layer_shapes import COUNTS, HEAD_SIZES, shape_of
from vbdrop.analysis.rules.bilinear import FEATURES
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.replaced_modules import NUMBERS
from vbdrop.convert.fast_path import NESTED
from vbdrop.layers import CountedNorm
from vbdrop.layers.computed_weight import MARK, base_of
from vbdrop.layers.unequal_recurrent import EQUAL, check_shapes


def check_names(plan: Plan, model: nn.Module) -> None:
    """Refuse a plan that sets anything but numbers of units.

    Raises:
        ValueError: If it does; the message names the attribute.
        AttributeError: If it names a module that does not exist.

    Example:
        >>> check_names(Plan(attributes={"": {"training": 0}}), nn.Linear(4, 2))
        Traceback (most recent call last):
        ...
        ValueError: the plan sets 'training' of the module '', a Linear.
    """
    for path, numbers in plan.attributes.items():
        module = model.get_submodule(path)
        shape = shape_of(module)
        allowed = {shape.inputs, shape.outputs} if shape else set()
        if isinstance(module, ConvNd):
            allowed.add("groups")
        if base_of(module) is not None or MARK in module.__dict__:
            allowed.add(MARK)
        if isinstance(module, nn.GroupNorm):
            allowed.add("num_groups")
        is_simple = set(module._parameters) <= {"weight", "bias", "scale"} and not (module._modules or module._buffers)
        if is_simple:  # it may be a norm
            allowed |= set(NUMBERS)
        if isinstance(module, nn.Bilinear):
            allowed |= set(FEATURES)
        allowed |= {name for name in (*COUNTS, *HEAD_SIZES) if type(getattr(module, name, None)) is int}
        if isinstance(module, nn.TransformerEncoder) and not numbers.get(NESTED):
            allowed.add(NESTED)
        for name in numbers.keys() - allowed:
            raise ValueError(f"the plan sets {name!r} of the module {path!r}, a {type(module).__name__}.")


def check_numbers(model: nn.Module) -> None:
    """Check that the numbers of units of a model's layers match their tensors.

    For recurrent layers this matters for safety: their kernels do not check the shapes of their weights, and read past
    the end of those that are too small.

    Raises:
        ValueError: If a layer does not match; the message names it.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> layer.in_features = 3
        >>> check_numbers(layer)
        Traceback (most recent call last):
        ...
        ValueError: the module '' has in_features=3; its tensors have 4.
    """
    for path, module in model.named_modules():
        if isinstance(module, nn.RNNBase):
            _check_recurrent(path, module)
        if isinstance(module, CountedNorm):
            _check_counted(path, module)
        for name, number in _numbers(module):
            if getattr(module, name) != number:
                raise ValueError(f"the module {path!r} has {name}={getattr(module, name)}; its tensors have {number}.")


def _check_recurrent(path: str, module: nn.RNNBase) -> None:
    """Check that the tensors fit each other and the numbers; unequal layers read their sizes from their tensors."""
    try:
        sizes = check_shapes(module)
    except ValueError as error:
        raise ValueError(f"the tensors of the module {path!r} do not fit each other: {error}") from error
    equal = {(module.hidden_size, module.proj_size or module.hidden_size)} == set(sizes)
    inputs = getattr(module, flat_weight_names(module)[0]).shape[1]
    if module.input_size != inputs or (not equal and type(module) not in EQUAL):
        raise ValueError(
            f"the module {path!r} has input_size={module.input_size}, hidden_size={module.hidden_size}; its tensors "
            f"have {inputs} inputs and {[hidden for hidden, _ in sizes]} units."
        )


def _check_counted(path: str, module: CountedNorm) -> None:
    """Check that a norm counts at least the channels that it has, and has equally many in each of its tensors."""
    shapes = [list(tensor.shape) for tensor in (module.weight, module.bias, module.scale) if tensor is not None]
    channels = max([sizes[0] for sizes in shapes if sizes], default=1)
    if any(sizes != [channels] for sizes in shapes) or not 1 <= channels <= module.count or module.from_end < 1:
        raise ValueError(
            f"the norm {path!r} counts {module.count} channels, on axis {module.from_end} from the end; its tensors "
            f"have the shapes {shapes}."
        )


def _numbers(module: nn.Module) -> Iterator[tuple[str, int]]:
    """The attributes of a layer, each with the number of units that a tensor has."""
    if isinstance(module, nn.Bilinear):
        yield from zip(FEATURES, module.weight.shape, strict=True)
    shape = shape_of(module)
    if shape is None:
        return
    if isinstance(module, nn.Linear):
        yield from (("out_features", module.weight.shape[0]), ("in_features", module.weight.shape[1]))
    elif isinstance(module, ConvNd):
        first, second = ("in", "out") if module.transposed else ("out", "in")
        yield f"{first}_channels", module.weight.shape[0]
        yield f"{second}_channels", module.weight.shape[1] * module.groups
    elif shape.inputs is not None and shape.inputs_first:
        yield from ((shape.inputs, module.weight.shape[0]), (shape.outputs, module.weight.shape[1]))  # type: ignore
    for name in ("bias", "running_mean", "running_var"):
        tensor = getattr(module, name, None)
        if tensor is not None:
            yield shape.outputs, len(tensor)

"""The closed table of the operations that a program can call.

A program comes from a file, and a file may come from anywhere. So a program can name only what is in this table,
whatever else torch offers; the arguments are checked too, see `vbdrop.compression.rewriting.call_checks`. The writer of
programs uses the same table: a graph with any other operation does not become a program, and the model keeps its
original forward.

To extend the table, add the name of the overload to a group. An operation belongs here if it has no side effects and
draws no random numbers, and if the shape of its result depends only on the shapes and numbers that it gets, not on the
values of tensors. If its kernels do not check the shapes of their arguments, it also needs a function in
`vbdrop.compression.rewriting.checked_calls`.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from vbdrop.compression.rewriting import checked_calls


@dataclass(frozen=True)
class Operation:
    """One row of the table; the kinds of the arguments are those of the schema.

    Attributes:
        words: Argument of type ``str`` -> its allowed values.
        sizes: The argument with the sizes of a new tensor.
        call: The function that is called instead of the operation itself.
        numbers: For arithmetic on sizes, which has no schema: the number of its arguments.
        on: Flags that must be set, although programs never set them for other operations.
    """

    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: str | None = None
    call: Callable[..., Any] | None = None
    numbers: int = 0
    on: tuple[str, ...] = ()


PLAIN = Operation()

PADS = Operation(words={"mode": ("constant", "reflect", "replicate", "circular")})
SAME_OR_VALID = Operation(words={"padding": ("same", "valid")})
ROUNDED = Operation(words={"rounding_mode": ("floor", "trunc")})

PRODUCTS = (
    *("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input"),
    *("matmul", "mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "outer", "bilinear", "embedding"),
    *("inner", "tensordot", "kron", "cdist", "one_hot"),
    *("rnn_tanh.input", "rnn_relu.input", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "lstm_cell"),
)
NORMALIZATIONS = (
    *("layer_norm", "native_layer_norm", "group_norm", "rms_norm", "batch_norm", "instance_norm"),
    *("softmax.int", "_softmax", "log_softmax.int", "_log_softmax", "cosine_similarity"),
)
POINTWISE = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "silu", "mish", "prelu", "glu", "hardswish"),
    *("hardsigmoid", "hardtanh", "hardshrink", "softshrink", "threshold", "sigmoid", "tanh", "softplus"),
    *("log_sigmoid", "log_sigmoid_forward", "erf", "erfc", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("abs", "neg", "sign", "sgn", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square"),
    *("reciprocal", "floor", "ceil", "round", "trunc", "frac", "logit", "nan_to_num", "isnan", "isinf", "isfinite"),
    *("clamp", "clamp.Tensor", "clamp_min", "clamp_min.Tensor", "clamp_max", "clamp_max.Tensor"),
    *("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "bitwise_not", "logical_not", "asinh", "acosh", "atanh"),
    *("erfinv", "lgamma", "sinc", "special_expit", "fill.Scalar", "fill.Tensor", "zero"),
)
IDENTITIES = (
    *("clone", "alias", "detach", "contiguous", "dropout", "feature_dropout", "alpha_dropout", "lift_fresh_copy"),
    *("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as"),
)
ARITHMETIC = (
    *("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar", "mul.Tensor", "mul.Scalar"),
    *("div.Tensor", "div.Scalar", "floor_divide", "floor_divide.Scalar", "remainder.Tensor", "remainder.Scalar"),
    *("fmod.Tensor", "fmod.Scalar", "atan2", "minimum", "maximum", "fmin", "fmax", "logaddexp", "hypot"),
    *(
        "max.other",
        "min.other",
        "addcmul",
        "addcdiv",
        "lerp.Scalar",
        "lerp.Tensor",
        "true_divide.Tensor",
        "copysign.Tensor",
    ),
    *(
        "where.self",
        "where.ScalarSelf",
        "where.ScalarOther",
        "where.Scalar",
        "masked_fill.Scalar",
        "masked_fill.Tensor",
    ),
    *("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor", "logical_and", "logical_or", "logical_xor"),
    *("__and__.Tensor", "__or__.Tensor", "__xor__.Tensor"),
    *(f"{name}.{kind}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")),
)
MOVEMENTS = (
    *("view", "reshape", "_unsafe_view", "flatten.using_ints", "unflatten.int", "squeeze", "squeeze.dim"),
    *("squeeze.dims", "unsqueeze", "expand", "expand_as", "view_as", "permute", "transpose.int", "t", "numpy_T", "mT"),
    *("movedim.int", "movedim.intlist", "swapaxes", "swapdims", "cat", "stack", "split.Tensor", "split_with_sizes"),
    *("chunk", "unbind.int", "tensor_split.sections", "slice.Tensor", "select.int", "narrow", "index_select"),
    *("gather", "index.Tensor", "index_add", "index_copy", "index_fill.int_Scalar", "slice_scatter", "select_scatter"),
    *("scatter.src", "scatter.value", "scatter_add", "take_along_dim", "roll", "flip", "rot90", "repeat", "tile"),
    *("repeat_interleave.self_int", "hstack", "vstack", "column_stack"),
    *("tril", "triu", "diagonal", "diag_embed", "unfold", "im2col", "col2im", "pixel_shuffle", "pixel_unshuffle"),
    *("channel_shuffle", "native_channel_shuffle", "constant_pad_nd", "broadcast_to", "meshgrid", "broadcast_tensors"),
    *("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d"),
)
REDUCTIONS = (
    *("mean", "mean.dim", "sum", "sum.dim_IntList", "prod", "prod.dim_int", "amax", "amin", "max", "max.dim"),
    *("min", "min.dim", "argmax", "argmin", "var.correction", "var.dim", "std.correction", "std.dim"),
    *(
        "var_mean.correction",
        "var_mean.dim",
        "std_mean.dim",
        "aminmax",
        "logsumexp",
        "cumsum",
        "cumprod",
        "all",
        "all.dim",
        "any",
        "any.dim",
        "topk",
        "sort",
    ),
    *("linalg_vector_norm", "norm.Scalar", "norm.ScalarOpt_dim", "median", "argsort"),
)
POOLS = (
    *(f"{kind}_pool{dims}d" for kind in ("max", "avg", "adaptive_avg") for dims in (1, 2, 3)),
    *(f"adaptive_max_pool{dims}d" for dims in (1, 2, 3)),
    *("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices"),
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
)
RESIZES = (
    *("upsample_nearest1d", "upsample_nearest1d.vec", "upsample_nearest2d", "upsample_nearest2d.vec"),
    *("upsample_nearest3d", "upsample_nearest3d.vec", "upsample_linear1d", "upsample_linear1d.vec"),
    *("upsample_bilinear2d", "upsample_bilinear2d.vec", "upsample_bicubic2d", "upsample_bicubic2d.vec"),
    *("upsample_trilinear3d", "upsample_trilinear3d.vec", "grid_sampler", "grid_sampler_2d", "affine_grid_generator"),
)
FROM_SIZES = ("zeros", "ones", "full", "new_zeros", "new_ones", "new_full")
FROM_RANGES = ("arange", "arange.start", "arange.start_step", "linspace", "eye", "eye.m")
LIKE = ("zeros_like", "ones_like", "full_like", "scalar_tensor", "sym_size.int", "sym_numel")

OTHER_SIZES = "the inputs must have the sizes of the example that the model was compressed with; the batch may be any"
"""The message of a program that refuses inputs of other sizes."""

OTHER_ARGUMENTS = "the model takes the arguments of the example that it was compressed with: all of them, and no others"
"""The message of a program that refuses an argument that the example skipped, or a missing later argument."""

OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys((*PRODUCTS, *NORMALIZATIONS, *POINTWISE, *IDENTITIES, *ARITHMETIC, *MOVEMENTS), PLAIN),
    **dict.fromkeys((*REDUCTIONS, *POOLS, *RESIZES, *FROM_RANGES, *LIKE), PLAIN),
    **dict.fromkeys(FROM_SIZES, Operation(sizes="size")),
    **dict.fromkeys(("conv1d.padding", "conv2d.padding", "conv3d.padding"), SAME_OR_VALID),
    **dict.fromkeys(("div.Tensor_mode", "div.Scalar_mode"), ROUNDED),
    "_assert_scalar": Operation(words={"assert_msg": (OTHER_SIZES, OTHER_ARGUMENTS)}),
    "pad": PADS,
    "gelu": Operation(words={"approximate": ("none", "tanh")}),
    "einsum": PLAIN,
    "meshgrid.indexing": Operation(words={"indexing": ("ij", "xy")}),
    "scaled_dot_product_attention": Operation(call=checked_calls.attention),
    "lstm.input": Operation(call=checked_calls.lstm),
    "gru.input": Operation(call=checked_calls.gru),
    "_native_batch_norm_legit_no_training": Operation(call=checked_calls.batch_norm),
    "_native_batch_norm_legit.no_stats": Operation(call=checked_calls.batch_norm_without_statistics, on=("training",)),
}
"""The overload of an ATen operation, without ``.default`` -> its row."""

ARITHMETIC_ON_SIZES: dict[str, Operation] = {
    "add": Operation(call=checked_calls.add_sizes, numbers=2),
    "sub": Operation(call=checked_calls.subtract_sizes, numbers=2),
    "mul": Operation(call=checked_calls.multiply_sizes, numbers=2),
    "floordiv": Operation(call=operator.floordiv, numbers=2),
    "mod": Operation(call=operator.mod, numbers=2),
    "neg": Operation(call=operator.neg, numbers=1),
    "truediv": Operation(call=operator.truediv, numbers=2),
    "eq": Operation(call=operator.eq, numbers=2),
    "getitem": Operation(call=operator.getitem),
}
"""The function of Python's ``operator`` -> its row."""


def find_operation(target: str) -> Operation | None:
    """The row of the table for a target in the notation of programs, or None if a program cannot name it.

    Example:
        >>> find_operation("aten.relu.default") is PLAIN
        True
        >>> find_operation("aten.manual_seed.default"), find_operation("operator.attrgetter")
        (None, None)
    """
    namespace, _, name = target.partition(".")
    if namespace == "operator":
        return ARITHMETIC_ON_SIZES.get(name)
    packet, _, overload = name.partition(".")
    if namespace != "aten" or not overload:
        return None
    return OPERATIONS.get(packet if overload == "default" else name)


def overload_of(target: str) -> Any:  # noqa: ANN401 -- an OpOverload, which torch does not export
    """The ATen operation of a target that is in the table."""
    _, packet, overload = target.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def function_of(target: str) -> Callable[..., Any]:
    """The function that a program calls for a target in the table.

    Example:
        >>> function_of("aten.lstm.input").__module__
        'vbdrop.compression.rewriting.checked_calls'
    """
    operation = find_operation(target)
    if operation is None:
        raise KeyError(target)
    return operation.call or overload_of(target)

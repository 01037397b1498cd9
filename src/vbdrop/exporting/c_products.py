"""Products with weights: linear layers, matrix products, convolutions, and the batch norm that follows them."""

import math

import numpy as np

from vbdrop.exporting.c_builder import Builder, Call, Variable
from vbdrop.exporting.c_program import Affine, ConvolutionOperation, Floats, Geometry, LinearOperation


def read_linear(builder: Builder, call: Call) -> Variable:
    """`linear(input, weight, bias)`."""
    weight = call.constant("weight")
    return _product(builder, call, call.variable("input"), weight, call.constant_or(0.0, "bias", len(weight)))


def read_matmul(builder: Builder, call: Call) -> Variable:
    """`matmul(self, other)` and `mm(self, mat2)`, with a constant matrix."""
    weight = call.constant("other" if call.name == "matmul" else "mat2").T
    if weight.ndim != 2:
        raise call.unsupported("its second argument is not a matrix")
    return _product(builder, call, call.variable("self"), weight, np.zeros(len(weight)))


def read_addmm(builder: Builder, call: Call) -> Variable:
    """`addmm(self, mat1, mat2)`: a bias and a product."""
    weight = call.constant("mat2").T
    if call.arguments["alpha"] != 1 or call.arguments["beta"] != 1:
        raise call.unsupported("with factors alpha or beta")
    return _product(builder, call, call.variable("mat1"), weight, call.constant_or(0.0, "self", len(weight)))


def _product(builder: Builder, call: Call, source: Variable, weight: Floats, bias: Floats) -> Variable:
    target = builder.result(call.shape)
    rows = math.prod(source.shape[:-1])
    builder.operations.append(LinearOperation(call.node, source.buffer, target.buffer, weight, bias, rows))
    return target


def read_convolution(builder: Builder, call: Call) -> Variable:
    """`conv1d` and `conv2d`; in one dimension a plane has height one."""
    source, weight = call.variable("input"), call.constant("weight")
    if call.name == "conv1d":
        weight = weight[:, :, None]
    weight = _without_groups(weight, call.arguments["groups"])
    kernel, dilation = (weight.shape[2], weight.shape[3]), call.pair("dilation")
    geometry = Geometry(
        channels=weight.shape[1],
        size=plane_of(source.shape),
        kernel=kernel,
        stride=call.pair("stride"),
        padding=_padding(call, kernel, dilation),
        dilation=dilation,
        output=plane_of(call.shape),
    )
    target = builder.result(call.shape)
    bias = call.constant_or(0.0, "bias", len(weight))
    builder.operations.append(ConvolutionOperation(call.node, source.buffer, target.buffer, weight, bias, geometry))
    return target


def _padding(call: Call, kernel: tuple[int, int], dilation: tuple[int, int]) -> tuple[int, int]:
    """The zeros before the first row and column; those at the end follow from the output size."""
    if call.arguments["padding"] == "valid":
        return 0, 0
    if call.arguments["padding"] == "same":
        return dilation[0] * (kernel[0] - 1) // 2, dilation[1] * (kernel[1] - 1) // 2
    return call.pair("padding")


def _without_groups(weight: Floats, groups: int) -> Floats:
    """The weights of an equivalent convolution over all channels: zero between groups."""
    outputs, channels = len(weight) // groups, weight.shape[1]
    full = np.zeros((len(weight), channels * groups, *weight.shape[2:]))
    for group in range(groups):
        own = slice(group * outputs, (group + 1) * outputs)
        full[own, group * channels : (group + 1) * channels] = weight[own]
    return full


def plane_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """(height, width) of [channels, height, width] or [channels, width]."""
    return (shape[1], shape[2]) if len(shape) == 3 else (1, shape[1])


def read_batch_norm(builder: Builder, call: Call) -> tuple[Variable, None, None]:
    """`_native_batch_norm_legit_no_training`; all outputs but the first are for training."""
    source, scale = call.variable("input"), 1 / np.sqrt(call.constant("running_var") + call.arguments["eps"])
    scale = scale * call.constant_or(1.0, "weight", len(scale))
    shift = call.constant_or(0.0, "bias", len(scale)) - call.constant("running_mean") * scale
    target = builder.result(source.shape)
    inner = math.prod(source.shape[1:])
    builder.operations.append(Affine(call.node, source.buffer, target.buffer, scale, shift, inner))
    return target, None, None

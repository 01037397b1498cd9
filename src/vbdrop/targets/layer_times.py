"""How long one layer takes with fewer channels, measured on this machine, for targets that are times."""

import copy
import itertools
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.exporting.exporting import export
from vbdrop.exporting.latency import Case, interleaved, one_thread
from vbdrop.exporting.onnx import open_session, ort_value, require_packages
from vbdrop.exporting.runtimes import RUNTIMES, in_torch

SHARES = {"onnx": (1.0, 0.5, 0.25, 0.0), "torch": (1.0, 0.5, 0.25, 0.0), "c": (1.0, 0.0)}
"""Runtime -> the shares of its input and output channels with which a layer is timed; 0 stands for one channel. C has
only the ends: it must be compiled for each size, and the time of its loops grows evenly."""

ROUNDS = 30
"""How many times each size is timed."""

BLOCK = 8
"""The number of channels that a runtime may handle together."""

SAME = 0.97
"""If a layer with half a block less takes more than this share of the time, the runtime works in blocks."""


@dataclass(frozen=True)
class LayerTimes:
    """The time of one layer over its numbers of channels, between which it is interpolated.

    Attributes:
        inputs: The numbers of input channels that were timed, ascending; empty if they change with the outputs, as in
            a convolution with groups.
        outputs: The same for output channels.
        seconds: For each of ``inputs``, the seconds with each of ``outputs``.
        blocks: How many input and output channels the runtime handles together: `BLOCK`, or 1.
        n_inputs: The input channels of the whole layer, where ``inputs`` is empty.

    Example:
        >>> times = LayerTimes([1, 16], [1, 32], [[1.0, 2.0], [3.0, 8.0]], (1, 8))
        >>> times(16, 32), times(16, 25), times(1, 32)
        (8.0, 8.0, 2.0)
    """

    inputs: list[int]
    outputs: list[int]
    seconds: list[list[float]]
    blocks: tuple[int, int]
    n_inputs: int = 0

    def __call__(self, n_inputs: float, n_outputs: float, *, smooth: bool = False) -> float:
        """The seconds with this many channels.

        Args:
            n_inputs: The input channels.
            n_outputs: The output channels.
            smooth: Whether to ignore blocks.
        """
        if not smooth:
            n_inputs = _whole(n_inputs, self.blocks[0], self.inputs)
            n_outputs = _whole(n_outputs, self.blocks[1], self.outputs)
        row = [_between(self.outputs, values, n_outputs) for values in self.seconds]
        return max(0.0, _between(self.inputs, row, n_inputs) if self.inputs else row[0])

    def slopes(self, n_inputs: float, n_outputs: float) -> tuple[float, float]:
        """About how much removing one input or output channel would save, ignoring blocks; never negative."""
        now = self(n_inputs, n_outputs, smooth=True)
        fewer = max(1.0, n_inputs / 4), max(1.0, n_outputs / 4)
        saved = (
            now - self(max(0.0, n_inputs - fewer[0]), n_outputs, smooth=True),
            now - self(n_inputs, max(0.0, n_outputs - fewer[1]), smooth=True),
        )
        return max(0.0, saved[0] / fewer[0]), max(0.0, saved[1] / fewer[1])


def undisturbed(seconds: Sequence[float]) -> float:
    """The time of an undisturbed call: the first decile of the measurements.

    Example:
        >>> undisturbed([1.0, 1.0, 1.1, 5.0, 9.0])
        1.0
    """
    return sorted(seconds)[len(seconds) // 10]


def _whole(count: float, block: int, timed: Sequence[int]) -> float:
    return count if block == 1 else min(float(timed[-1]), math.ceil(count / block) * block)


def _between(places: Sequence[int], values: Sequence[float], at: float) -> float:
    """Linear interpolation, extended below the first point and above the last."""
    if len(places) == 1:
        return values[0] * at / places[0]
    last = next((index for index in range(1, len(places) - 1) if at <= places[index]), len(places) - 1)
    share = (at - places[last - 1]) / (places[last] - places[last - 1])
    return values[last - 1] + share * (values[last] - values[last - 1])


def time_layer(layer: nn.Module, input_shape: Sequence[int], runtime: str) -> LayerTimes:
    """Time a linear layer or a convolution over a grid of its channels.

    Args:
        layer: A plain layer. With groups, all channels change together, and one size is timed.
        input_shape: The shape of its input, with the batch.
        runtime: ``"onnx"``, ``"torch"`` or ``"c"``.

    Example:
        >>> times = time_layer(nn.Linear(16, 32), (1, 16), "torch")
        >>> times.outputs
        [1, 8, 16, 32]
    """
    n_inputs, n_outputs = _channels(layer)
    if getattr(layer, "groups", 1) > 1:
        with tempfile.TemporaryDirectory(prefix="vbdrop-") as folder:
            seconds = _seconds({(n_inputs, n_outputs): (layer, input_shape)}, runtime, Path(folder))
        return LayerTimes([], [n_outputs], [[seconds[n_inputs, n_outputs]]], (1, 1), n_inputs)
    inputs, outputs = (_grid(count, SHARES[runtime]) for count in (n_inputs, n_outputs))
    sizes = list(itertools.product(inputs, outputs))
    probes = [(n_inputs - BLOCK // 2, n_outputs), (n_inputs, n_outputs - BLOCK // 2)]
    whole = [count % BLOCK == 0 and count > BLOCK and runtime != "c" for count in (n_inputs, n_outputs)]
    sizes += [probe for probe, asked in zip(probes, whole, strict=True) if asked]
    layers = {size: _resized(layer, input_shape, *size) for size in sizes}
    with tempfile.TemporaryDirectory(prefix="vbdrop-") as folder:
        seconds = _seconds(layers, runtime, Path(folder))
    full = seconds[n_inputs, n_outputs]
    blocks = [
        BLOCK if asked and seconds[probe] > SAME * full else 1 for probe, asked in zip(probes, whole, strict=True)
    ]
    table = [[seconds[row, column] for column in outputs] for row in inputs]
    return LayerTimes(inputs, outputs, table, (blocks[0], blocks[1]))


def _grid(count: int, shares: Sequence[float]) -> list[int]:
    """Numbers of channels, in whole blocks if possible."""
    found = {max(1, round(share * count)) for share in shares}
    return sorted({max(1, n // BLOCK * BLOCK) if n > BLOCK and n != count else n for n in found})


def _channels(layer: nn.Module) -> tuple[int, int]:
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return int(layer.in_channels), int(layer.out_channels)  # type: ignore[arg-type]


def _resized(
    layer: nn.Module, input_shape: Sequence[int], n_inputs: int, n_outputs: int
) -> tuple[nn.Module, tuple[int, ...]]:
    """A layer of the same kind with other numbers of channels, and the shape of its input."""
    shape = list(input_shape)
    if isinstance(layer, nn.Linear):
        shape[-1] = n_inputs
        return nn.Linear(n_inputs, n_outputs, layer.bias is not None), tuple(shape)
    shape[1] = n_inputs
    names = ("kernel_size", "stride", "padding", "dilation")
    options: dict[str, Any] = {name: getattr(layer, name) for name in names}
    if "Transpose" in type(layer).__name__:
        options["output_padding"] = layer.output_padding
    kind = next(kind for kind in CONVOLUTIONS if isinstance(layer, kind))
    made: nn.Module = kind(n_inputs, n_outputs, **options, bias=layer.bias is not None)
    return made, tuple(shape)


CONVOLUTIONS: tuple[type[Any], ...] = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip


Sized = tuple[nn.Module, Sequence[int]]
"""A layer, and the shape of its input."""


def _seconds(layers: Mapping[tuple[int, int], Sized], runtime: str, folder: Path) -> dict[tuple[int, int], float]:
    """Size -> seconds per call, minus those of a call that does nothing."""
    cases: dict[str, Case] = {"nothing": _CASES[runtime](nn.Identity(), (1, 1), folder / "nothing")}
    names = {size: f"{size[0]}x{size[1]}" for size in layers}
    for size, (layer, shape) in layers.items():
        cases[names[size]] = _CASES[runtime](copy.deepcopy(layer).float().eval(), shape, folder / names[size])
    with one_thread(), torch.inference_mode():
        timed = {name: undisturbed(rounds) for name, rounds in interleaved(cases, ROUNDS).items()}
    return {size: max(0.0, timed[name] - timed["nothing"]) for size, name in names.items()}


def _torch_case(layer: nn.Module, shape: Sequence[int], path: Path) -> Case:
    return in_torch(layer)([(torch.rand(*shape),)])


def _c_case(layer: nn.Module, shape: Sequence[int], path: Path) -> Case:
    sample = torch.rand(*shape)
    if isinstance(layer, nn.Identity):
        return lambda call: None
    exported = export(layer, path.with_suffix(".c"), sample)
    return RUNTIMES[".c"][1](exported.path)([(sample,)])


def _onnx_case(layer: nn.Module, shape: Sequence[int], path: Path) -> Case:
    """One layer as an ONNX graph, written directly, since torch's exporter takes a second for each."""
    require_packages()
    path = path.with_suffix(".onnx")
    path.write_bytes(_onnx_graph(layer, shape))
    session = open_session(path)
    sample = torch.rand(*shape).numpy()
    outputs = session.run(None, {"x": sample})
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort_value(sample))
    binding.bind_ortvalue_output("y", ort_value(outputs[0]))
    return lambda call: session.run_with_iobinding(binding)


def _onnx_graph(layer: nn.Module, shape: Sequence[int]) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    tensors: dict[str, Tensor] = {name: tensor.detach() for name, tensor in layer.named_parameters()}
    if isinstance(layer, nn.Identity):
        nodes = [helper.make_node("Identity", ["x"], ["y"])]
    elif isinstance(layer, nn.Linear) and len(shape) == 2:
        nodes = [helper.make_node("Gemm", ["x", *tensors], ["y"], transB=1)]
    elif isinstance(layer, nn.Linear):
        tensors["weight"] = tensors["weight"].t().contiguous()
        nodes = [helper.make_node("MatMul", ["x", "weight"], ["product" if "bias" in tensors else "y"])]
        nodes += [helper.make_node("Add", ["product", "bias"], ["y"])] if "bias" in tensors else []
    else:
        kind = "ConvTranspose" if "Transpose" in type(layer).__name__ else "Conv"
        options: dict[str, Any] = {"strides": layer.stride, "dilations": layer.dilation, "group": layer.groups}
        if isinstance(layer.padding, str):
            options["auto_pad"] = "VALID" if layer.padding == "valid" else "SAME_UPPER"
        else:
            options["pads"] = [*layer.padding, *layer.padding]  # type: ignore[misc]
        nodes = [helper.make_node(kind, ["x", *tensors], ["y"], **options)]
    sides = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    weights = [numpy_helper.from_array(tensor.numpy(), name) for name, tensor in tensors.items()]
    graph = helper.make_graph(nodes, "layer", sides[:1], sides[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(model.SerializeToString())


_CASES: dict[str, Callable[[nn.Module, Sequence[int], Path], Case]] = {
    "onnx": _onnx_case,
    "torch": _torch_case,
    "c": _c_case,
}

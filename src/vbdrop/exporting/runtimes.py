"""The runtimes to time: PyTorch, ONNX Runtime, a program of torch.export, and C through `ctypes`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from vbdrop.exporting.agreement import Inputs
from vbdrop.exporting.c_compiler import FAST, compile_network
from vbdrop.exporting.latency import Case
from vbdrop.exporting.onnx import open_session, ort_value
from vbdrop.exporting.program import load_program

Runtime = Callable[[list[Inputs]], Case]
"""Inputs to cycle through -> the function to time."""


def in_torch(model: nn.Module) -> Runtime:
    """The model itself."""

    def make(samples: list[Inputs]) -> Case:
        return lambda call: model(*samples[call % len(samples)])

    return make


def in_program(path: Path) -> Runtime:
    """A ``.pt2`` file."""
    return in_torch(load_program(path))


def in_onnx(path: Path) -> Runtime:
    """An ``.onnx`` file, with one thread; inputs and outputs are bound to their own memory, as for C."""
    session = open_session(path, threads=1)

    def bind(sample: Inputs) -> tuple[Any, ...]:
        feed = {value.name: given.numpy() for value, given in zip(session.get_inputs(), sample, strict=True)}
        outputs = session.run(None, feed)
        binding = session.io_binding()
        for name, array in feed.items():
            binding.bind_ortvalue_input(name, ort_value(array))
        for value, array in zip(session.get_outputs(), outputs, strict=True):
            binding.bind_ortvalue_output(value.name, ort_value(array))
        return binding, feed, outputs  # the arrays must live as long as the binding

    def make(samples: list[Inputs]) -> Case:
        bindings = [bind(sample) for sample in samples]
        return lambda call: session.run_with_iobinding(bindings[call % len(bindings)][0])

    return make


def in_c(path: Path) -> Runtime:
    """A ``.c`` file, compiled for this machine."""
    network = compile_network(path, FAST)

    def make(samples: list[Inputs]) -> Case:
        arrays = [np.ascontiguousarray(sample[0].float().numpy()) for sample in samples]
        count = len(arrays[0])
        output = np.empty((count, network.output_size), dtype=np.float32)
        # The arrays are kept with their addresses, since they must live as long.
        inputs, target = [(array.ctypes.data, array) for array in arrays], (output.ctypes.data, output)
        if count == 1:
            return lambda call: network.predict(inputs[call % len(inputs)][0], target[0])
        return lambda call: network.predict_batch(inputs[call % len(inputs)][0], target[0], count)

    return make


RUNTIMES: dict[str, tuple[str, Callable[[Path], Runtime]]] = {
    ".onnx": ("ONNX Runtime", in_onnx),
    ".pt2": ("torch.export", in_program),
    ".c": ("C", in_c),
}
"""The ending of an export -> the name of its runtime, and how to run it."""

"""The `.onnx` file: one file that contains the weights, for batches of any size."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

from vbdrop.exporting.agreement import Inputs, Runtime
from vbdrop.exporting.errors import ExportError
from vbdrop.exporting.onnx_selection import widen_selections_
from vbdrop.exporting.program import batch_shapes, trace_program, tracing

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def require_packages() -> None:
    """Raise an error with the installation command if one of the packages is missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(f'ONNX needs {" and ".join(missing)}: pip install "vbdrop[export]"')


def write_onnx(model: nn.Module, path: Path, inputs: Inputs) -> tuple[Path, ...]:
    """Write `model` to `path`, with torch's exporter."""
    require_packages()
    if any(value.dtype == torch.bfloat16 for value in inputs):
        raise ExportError("ONNX Runtime cannot take inputs in bfloat16; export model.float(), with inputs in float32.")
    program = trace_program(model, inputs)
    returned = [spec.arg for spec in program.graph_signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]
    if other := next((each for each in returned if not isinstance(each, TensorArgument)), None):
        what = repr(other.value) if isinstance(other, ConstantArgument) else "a number that depends on its inputs"
        raise ExportError(f"an ONNX file returns tensors only, and the model also returns {what}.")
    with tracing("torch cannot write the model as ONNX"):
        try:
            exported = torch.onnx.export(
                program,
                dynamo=True,
                dynamic_shapes=batch_shapes(model, inputs),  # for the name of the axis
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise RuntimeError(str(_origin(error))) from error  # only that one names the operation
    if exported is None:
        raise ExportError("torch.onnx.export gave no program.")
    proto = exported.model_proto
    widen_selections_(proto)
    _forget_origin_(proto)
    path.write_bytes(proto.SerializeToString())
    return (path,)


def _origin(error: BaseException) -> BaseException:
    """The error that led to this one."""
    return error if error.__cause__ is None else _origin(error.__cause__)


def _forget_origin_(proto: Any) -> None:  # noqa: ANN401 -- a protobuf message
    """Drop the exporter's metadata: stack traces with paths of this machine, larger than a small network."""
    graphs = [proto.graph, *proto.functions]
    del proto.metadata_props[:]
    for graph in graphs:
        parts = [graph, *graph.node, *graph.value_info]
        if graph is proto.graph:
            parts += [*graph.initializer, *graph.input, *graph.output]
        for part in parts:
            del part.metadata_props[:]


def open_session(path: Path, threads: int = 1) -> Any:  # noqa: ANN401 -- onnxruntime has no types
    """A session of ONNX Runtime on the CPU.

    Raises:
        ExportError: ONNX Runtime rejects the file.
    """
    require_packages()
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    try:
        with tracing(f"ONNX Runtime cannot run {path.name}"):
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except ExportError as error:
        raise ExportError(f"{error}{_about_precision(path)}") from error


def _about_precision(path: Path) -> str:
    """What to do about a file that ONNX Runtime rejects, if its numbers are not float32."""
    import onnx

    graph, kinds = onnx.load(path).graph, onnx.TensorProto
    found = {tensor.data_type for tensor in graph.initializer}
    found |= {value.type.tensor_type.elem_type for value in graph.input}
    others = [kind for kind in (kinds.DOUBLE, kinds.BFLOAT16, kinds.FLOAT16) if kind in found]
    if not others:
        return ""
    names = " and ".join(kinds.DataType.Name(kind).lower() for kind in others)
    return f". The model is in {names}, for which ONNX Runtime lacks operations: export model.float()"


def ort_value(array: NDArray[Any]) -> Any:  # noqa: ANN401 -- onnxruntime has no types
    """The memory of an array, as ONNX Runtime binds it."""
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def run_onnx(path: Path) -> Runtime:
    """The model in the file, as a function."""
    session = open_session(path)
    names = [value.name for value in session.get_inputs()]

    def run(inputs: Inputs) -> list[torch.Tensor]:
        feed = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        return [torch.from_numpy(value) for value in session.run(None, feed)]

    return run

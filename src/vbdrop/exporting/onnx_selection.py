"""Merges a selection of inputs into the product that follows it, if that is faster.

A small model selects the inputs that it needs. ONNX Runtime copies them one by one, at a few nanoseconds each, while a
product over all inputs, with zeros for those that are not needed, takes a small fraction of a nanosecond per weight.
"""

from typing import Any

import numpy as np

WEIGHTS_PER_COPY = 150
"""Weights of a product that take about as long as copying one selected input."""


def widen_selections_(proto: Any) -> None:  # noqa: ANN401 -- a protobuf message
    """Remove each selection that only one product reads, if that adds few enough zeros to the product."""
    from onnx import numpy_helper

    graph = proto.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    readers: dict[str, list[Any]] = {value.name: [value] for value in graph.output}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for selection in [node for node in graph.node if node.op_type == "Gather"]:
        product = _product_of(selection, readers, constants)
        size = _axis_size(graph, selection.input[0])
        if product is None or size is None:
            continue
        weight = numpy_helper.to_array(constants[product.input[1]])
        kept = numpy_helper.to_array(constants[selection.input[1]])
        if (size - len(kept)) * len(weight) > WEIGHTS_PER_COPY * len(kept) or len(np.unique(kept)) != len(kept):
            continue
        wide = np.zeros((len(weight), size), dtype=weight.dtype)
        wide[:, kept] = weight
        constants[product.input[1]].CopyFrom(numpy_helper.from_array(wide, product.input[1]))
        product.input[0] = selection.input[0]
        graph.node.remove(selection)
        for value in [value for value in graph.value_info if value.name in (product.input[1], selection.output[0])]:
            graph.value_info.remove(value)  # it has the old shapes
        if len(readers[selection.input[1]]) == 1:
            graph.initializer.remove(constants[selection.input[1]])


def _product_of(selection: Any, readers: dict[str, list[Any]], constants: dict[str, Any]) -> Any:  # noqa: ANN401
    """The only reader of a selection along the second axis, if it is a product with its own constant weight."""
    users = readers.get(selection.output[0], [])
    axis = next((attribute.i for attribute in selection.attribute if attribute.name == "axis"), 0)
    if selection.input[1] not in constants or len(users) != 1 or axis != 1:
        return None
    (product,) = users
    if getattr(product, "op_type", "") != "Gemm" or product.input[0] != selection.output[0]:
        return None
    settings = {attribute.name: attribute.i for attribute in product.attribute}
    is_plain = settings.get("transB", 0) == 1 and settings.get("transA", 0) == 0
    is_own = product.input[1] in constants and len(readers[product.input[1]]) == 1
    return product if is_plain and is_own else None


def _axis_size(graph: Any, name: str) -> int | None:  # noqa: ANN401 -- a protobuf message
    """The size of the second axis of a matrix, if the graph states it."""
    for value in (*graph.input, *graph.value_info):
        if value.name == name:
            dimensions = value.type.tensor_type.shape.dim
            return int(dimensions[1].dim_value) or None if len(dimensions) == 2 else None
    return None

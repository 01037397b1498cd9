"""A network as C99: one source and one header, without allocation and without any library but libm."""

from pathlib import Path

import torch
from torch import nn

from vbdrop.exporting.agreement import Inputs, Runtime
from vbdrop.exporting.c_calls import Fragment, Places, write_operation
from vbdrop.exporting.c_compiler import STRICT, compile_network, header_of, identifier
from vbdrop.exporting.c_kernels import kernel_sources
from vbdrop.exporting.c_memory import BufferLayout, place
from vbdrop.exporting.c_program import CProgram
from vbdrop.exporting.c_reader import read_program
from vbdrop.exporting.errors import ExportError
from vbdrop.kernels import find_compiler


def write_c(model: nn.Module, path: Path, inputs: Inputs) -> tuple[Path, ...]:
    """Write `model`, in eval mode, as C to `path` and a header beside it.

    The functions are named after the file: `net.c` has `net_predict` and `net_predict_batch`. `header_of` names the
    header, and all text is ASCII, whatever the name of the file. Weights are `static const`; those of a layer with many
    zeros are stored with their positions. Batch norm is folded into the product before it. Scratch memory is one static
    array, so a network must not be called from two threads at once.

    Raises:
        ExportError: The model has an operation that cannot be written; the message names it.
    """
    if len(inputs) != 1:
        raise ExportError(f"the C writer writes models with one input; this one has {len(inputs)}.")
    if inputs[0].is_complex():
        raise ExportError(f"the C writer writes models of real numbers; the input is {inputs[0].dtype}.")
    if not inputs[0].dim():
        raise ExportError("the C writer needs `example_inputs` with a batch axis; got a tensor without axes.")
    name = identifier(path)
    program = read_program(model, inputs[0])
    header = header_of(path)
    path.write_text(_source(program, place(program), name, header.name), encoding="ascii")
    header.write_text(_header(program, name), encoding="ascii")
    return path, header


def run_c(path: Path) -> Runtime | None:
    """The compiled source as a function; None without a compiler."""
    if find_compiler() is None:
        return None
    network = compile_network(path, STRICT)
    return lambda inputs: [torch.from_numpy(network(inputs[0].float().numpy()))]


def _header(program: CProgram, name: str) -> str:
    upper = name.upper()
    return f"""\
/* A network written by vbdrop. */
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>

/* Floats of one sample. */
#define {upper}_INPUT_SIZE {program.input.size}
#define {upper}_OUTPUT_SIZE {program.output.size}

#ifdef __cplusplus
extern "C" {{
#endif

/* The output for one sample. The arrays must not overlap; not to be called from two threads at once. */
void {name}_predict(const float *input, float *output);

/* The same for `count` samples, one after the other. */
void {name}_predict_batch(const float *input, float *output, size_t count);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _source(program: CProgram, layout: BufferLayout, name: str, header: str) -> str:
    fragments = [
        write_operation(
            operation,
            Places(
                tuple(layout.buffers[source] for source in operation.sources),
                layout.buffers[operation.target],
                layout.workspaces.get(step, "scratch"),
            ),
        )
        for step, operation in enumerate(program.operations)
    ]
    kernels = kernel_sources(set().union(*(fragment.kernels for fragment in fragments)))
    steps = zip(program.operations, fragments, strict=True)
    body = "\n\n".join(_statements(operation.name, fragment) for operation, fragment in steps)
    if "input" not in body:
        body = "    (void)input; /* the output is a constant */\n\n" + body
    scratch = f"static float scratch[{max(1, layout.scratch_size)}];\n\n" if "scratch" in body else ""
    tables = [table for fragment in fragments for table in fragment.tables]
    upper = name.upper()
    return f"""\
/* A network written by vbdrop. C99, with libm; fastest with -O3 -march=native -ffp-contract=fast */
#include "{header}"

#include <math.h>
#include <stdint.h>
#include <string.h>

{chr(10).join(chr(10) + kernel for kernel in kernels).strip()}

{chr(10).join(tables)}

{scratch}void {name}_predict(const float *restrict input, float *restrict output)
{{
{body}
}}

void {name}_predict_batch(const float *input, float *output, size_t count)
{{
    for (size_t i = 0; i < count; ++i) {{
        {name}_predict(input + i * {upper}_INPUT_SIZE, output + i * {upper}_OUTPUT_SIZE);
    }}
}}
"""


def _statements(name: str, fragment: Fragment) -> str:
    comment = f"{name}: {fragment.note}" if fragment.note else name
    return "\n".join(f"    {line}" for line in (f"/* {comment} */", *fragment.lines))

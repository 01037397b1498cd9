from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vbdrop.exporting.c_memory import place
from vbdrop.exporting.c_program import (
    Buffer,
    Combine,
    ConvolutionOperation,
    CProgram,
    Geometry,
    Pointwise,
    Pool,
    Softmax,
)


def relu(source: Buffer, target: Buffer) -> Pointwise:
    return Pointwise("relu", source, target, "v")


def offset_of(expression: str) -> int:
    return int(expression.partition(" + ")[2] or 0)


def test_a_chain_in_place_is_written_into_the_output():
    buffers = [Buffer(i, 8) for i in range(4)]
    program = CProgram(buffers[0], buffers[3], [relu(a, b) for a, b in pairwise(buffers)])
    layout = place(program)
    assert [layout.buffers[buffer] for buffer in buffers] == ["input", "output", "output", "output"]
    assert layout.scratch_size == 0


def test_what_is_read_again_is_not_written_over():
    x, a, b, c = (Buffer(i, 8) for i in range(4))
    program = CProgram(x, c, [relu(x, a), relu(a, b), Combine("add", b, c, a, "+", 1)])
    layout = place(program)
    assert layout.buffers[a].startswith("scratch")
    assert layout.buffers[b] == layout.buffers[c] == "output"


def test_a_value_that_meets_itself_gets_a_place_of_its_own():
    x, a, b = (Buffer(i, 8) for i in range(3))
    layout = place(CProgram(x, b, [relu(x, a), Combine("square", a, b, a, "*", 1)]))
    assert layout.buffers[a] != layout.buffers[b]


def pool(source: Buffer, target: Buffer) -> Pool:
    """An operation that cannot work in place, and needs a workspace of 4."""
    axis = np.zeros(0, np.int64)
    geometry = Geometry(1, (2, 2), (1, 2), (1, 1), (0, 0), (1, 1), (2, 1))
    return ConvolutionOperation("conv", source, target, np.zeros((1, 1, 1, 2)), axis.astype(float), geometry)


@st.composite
def programs(draw):
    """Random programs: in place, not in place, with two sources, of buffers of any size."""
    count = draw(st.integers(1, 12))
    buffers = [Buffer(0, draw(st.integers(1, 40)))]
    operations = []
    for number in range(1, count + 1):
        source = draw(st.sampled_from(buffers))
        kind = draw(st.sampled_from(["relu", "conv", "add"]))
        same = [buffer for buffer in buffers if buffer.size == source.size]
        target = Buffer(number, source.size if kind != "conv" else draw(st.integers(1, 40)))
        if kind == "relu":
            operations.append(relu(source, target))
        elif kind == "conv":
            operations.append(pool(source, target))
        else:
            operations.append(Combine("add", source, target, draw(st.sampled_from(same)), "+", 1))
        buffers.append(target)
    return CProgram(buffers[0], buffers[-1], operations)


@given(programs())
def test_no_value_is_written_over_before_its_last_use(program):
    """Runs the program on memory where each place remembers whose value it holds."""
    layout = place(program)
    memory: dict[tuple[str, int], Buffer] = {("input", i): program.input for i in range(program.input.size)}

    def cells(expression: str, size: int) -> list[tuple[str, int]]:
        start = offset_of(expression)
        return [(expression.partition(" + ")[0], start + i) for i in range(size)]

    for step, operation in enumerate(program.operations):
        for source in operation.sources:
            assert all(memory[cell] == source for cell in cells(layout.buffers[source], source.size))
        if operation.workspace:
            for cell in cells(layout.workspaces[step], operation.workspace):
                memory[cell] = None
            for source in operation.sources:
                assert all(memory[cell] == source for cell in cells(layout.buffers[source], source.size))
        for cell in cells(layout.buffers[operation.target], operation.target.size):
            assert cell[0] != "input"
            assert cell[0] == "output" or cell[1] < layout.scratch_size
            memory[cell] = operation.target
        if not operation.in_place:
            assert all(memory[c] == s for s in operation.sources for c in cells(layout.buffers[s], s.size))
    assert layout.buffers[program.output] == "output"


def test_memory_is_used_again():
    buffers = [Buffer(i, 100) for i in range(7)]
    program = CProgram(buffers[0], buffers[6], [pool(a, b) for a, b in pairwise(buffers)])
    assert place(program).scratch_size <= 2 * 104 + 4
    softmax = Softmax("softmax", buffers[0], buffers[1], 10, 1, log=False)
    assert place(CProgram(buffers[0], buffers[1], [softmax])).scratch_size == 0

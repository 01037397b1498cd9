"""Places the buffers of a program: in the caller's arrays, or in one static array whose parts are reused."""

from dataclasses import dataclass

from vbdrop.exporting.c_program import Buffer, CProgram

# Parts of the static array start at multiples of this many floats, so that a vector load does not straddle cache lines.
ALIGNMENT = 8


@dataclass(frozen=True)
class BufferLayout:
    """A C expression for each buffer and for the workspace of each operation, and the floats of scratch memory."""

    buffers: dict[Buffer, str]
    workspaces: dict[int, str]
    scratch_size: int


@dataclass
class _Block:
    """Memory in use from operation `first` to operation `last`."""

    size: int
    first: int
    last: int
    offset: int = 0

    def meets(self, other: "_Block") -> bool:
        return self.first <= other.last and other.first <= self.last


def place(program: CProgram) -> BufferLayout:
    """Place the buffers of `program` in little scratch memory, by a greedy first fit.

    An operation that can work in place does so if its source is not read again.
    """
    last_read = _last_reads(program)
    owner = _shared_owners(program, last_read)
    blocks: dict[Buffer, _Block] = {}
    for step, operation in enumerate(program.operations):
        block = blocks.setdefault(owner[operation.target], _Block(operation.target.size, step, step))
        block.last = max(block.last, last_read.get(operation.target, step))
    workspaces = {
        step: _Block(operation.workspace, step, step)
        for step, operation in enumerate(program.operations)
        if operation.workspace
    }
    blocks.pop(owner[program.output], None)
    size = _fit([*blocks.values(), *workspaces.values()])

    def expression(buffer: Buffer) -> str:
        if owner[buffer] == owner[program.output] and buffer != program.input:
            return "output"
        return "input" if buffer == program.input else _at(blocks[owner[buffer]])

    return BufferLayout(
        {buffer: expression(buffer) for buffer in owner},
        {step: _at(block) for step, block in workspaces.items()},
        size,
    )


def _last_reads(program: CProgram) -> dict[Buffer, int]:
    last = {source: step for step, operation in enumerate(program.operations) for source in operation.sources}
    last[program.output] = len(program.operations)
    return last


def _shared_owners(program: CProgram, last_read: dict[Buffer, int]) -> dict[Buffer, Buffer]:
    """The buffer whose memory each buffer uses: its own or, after in-place operations, that of an earlier one."""
    owner = {program.input: program.input}
    for step, operation in enumerate(program.operations):
        owner[operation.target] = operation.target
        if not operation.in_place:
            continue
        source, *others = operation.sources
        if source != program.input and last_read[source] == step and source not in others:
            owner[operation.target] = owner[source]
    return owner


def _fit(blocks: list[_Block]) -> int:
    """Give each block an offset, largest first. Return the total number of floats."""
    placed: list[_Block] = []
    for block in sorted(blocks, key=lambda block: -block.size):
        offset = 0
        for other in sorted(placed, key=lambda other: other.offset):
            if other.meets(block):
                if offset + block.size <= other.offset:
                    break
                offset = max(offset, _aligned(other.offset + other.size))
        block.offset = offset
        placed.append(block)
    return max((block.offset + block.size for block in placed), default=0)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _at(block: _Block) -> str:
    return f"scratch + {block.offset}" if block.offset else "scratch"

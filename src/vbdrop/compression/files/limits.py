"""How much memory a file may ask for: every size in it is bounded by the size of the file.

Together the bounds keep the peak memory of `vbdrop.load` below 50 MB plus ten times the file size plus the bytes of the
given model. Each bound is a fixed allowance, for small files, plus a multiple of the file size.
"""

from dataclasses import dataclass

from vbdrop.compression.files.format import FileFormatError

MEBIBYTE = 2**20

DEEPEST = 64
"""The deepest nesting of the header."""

MOST_LAYERS = 1000
"""The longest list among the arguments of a network of `vbdrop.models`."""


@dataclass(frozen=True)
class Limits:
    """The bounds for one file.

    Attributes:
        file: The size of the file in bytes.
        model: The size of the given fresh model in bytes; 0 without one.

    Example:
        >>> limits = Limits(file=1_000_000)
        >>> limits.nodes, limits.indices
        (1625, 180833)
    """

    file: int
    model: int = 0

    @property
    def parsed(self) -> int:
        """The approximate bytes of memory that the parsed header may use."""
        return 8 * MEBIBYTE + 2 * self.file

    @property
    def nodes(self) -> int:
        """The most nodes of a program; each uses about 8 kB when its code is generated."""
        return 1500 + self.file // 8000

    @property
    def indices(self) -> int:
        """The most indices in all cuts and buffers of a plan together; a list that is named twice counts twice."""
        return 160_000 + self.file // 48

    @property
    def dense(self) -> int:
        """The most bytes of all tensors of the small model, including the zeros that the file omits."""
        return 12 * MEBIBYTE + 4 * self.file + self.model

    @property
    def call(self) -> int:
        """The bytes that a call of a program may use beyond what its inputs justify."""
        return 16 * MEBIBYTE + 4 * self.file + self.model

    def check_text(self, text: bytes, what: str) -> None:
        """Refuse JSON that would use too much memory once it is parsed.

        Raises:
            FileFormatError: If it has too many objects and lists, or too many entries.
        """
        needed = 200 * (text.count(b"[") + text.count(b"{")) + 60 * text.count(b",")
        if needed > self.parsed:
            raise FileFormatError(
                f"{what} would take about {needed:,} bytes of memory; {self.parsed:,} are allowed for a file of "
                f"{self.file:,} bytes."
            )

    def check_nodes(self, count: int) -> None:
        """Refuse a program that is too long for its file."""
        if count > self.nodes:
            raise FileFormatError(
                f"the program has {count:,} nodes; {self.nodes:,} are allowed in a file of {self.file:,} bytes."
            )

    def check_indices(self, count: int) -> None:
        """Refuse lists of indices that are too long for their file."""
        if count > self.indices:
            raise FileFormatError(
                f"the plan names {count:,} indices; {self.indices:,} are allowed in a file of {self.file:,} bytes."
            )

    def check_dense(self, needed: int) -> None:
        """Refuse tensors that are too large for their file and the given model."""
        if needed > self.dense:
            hint = "" if self.model else "; if this is intended, pass a fresh model of its class: load(path, model=...)"
            raise FileFormatError(
                f"the model would take {needed:,} bytes of memory; {self.dense:,} are allowed for a file of "
                f"{self.file:,} bytes{hint}."
            )


def check_depth(value: object) -> None:
    """Refuse data that is nested too deeply for the functions that read it.

    Example:
        >>> check_depth([[{"a": 1}]])
    """
    level, depth = [value], 0
    while level:
        if depth > DEEPEST:
            raise FileFormatError(f"the header must be nested at most {DEEPEST} deep.")
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, dict | list)
        ]
        depth += 1

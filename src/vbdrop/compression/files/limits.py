"""How much a file may ask for: every size in it is bounded by its own number of bytes.

Together the bounds hold the peak of `vbdrop.load` below 50 MB plus ten times the file plus the bytes of the model that
it is given. Each bound is a fixed allowance, for small files, plus a multiple of the file.
"""

from dataclasses import dataclass

from vbdrop.compression.files.format import FileFormatError

MEBIBYTE = 2**20

DEEPEST = 64
"""The deepest nesting of the header."""

MOST_LAYERS = 1000
"""The entries of a list among the arguments of a network of `vbdrop.models`."""


@dataclass(frozen=True)
class Limits:
    """The bounds for one file.

    Attributes:
        file: The bytes of the file.
        model: The bytes of the fresh model that was given; 0 without one.

    Example:
        >>> limits = Limits(file=1_000_000)
        >>> limits.nodes, limits.indices
        (1625, 180833)
    """

    file: int
    model: int = 0

    @property
    def parsed(self) -> int:
        """The approximate bytes of memory that the parsed header may take."""
        return 8 * MEBIBYTE + 2 * self.file

    @property
    def nodes(self) -> int:
        """The nodes of a program; each takes about 8 kB when its code is made."""
        return 1500 + self.file // 8000

    @property
    def indices(self) -> int:
        """The indices that all cuts and buffers of a plan name together, a list that is named twice counted twice."""
        return 160_000 + self.file // 48

    @property
    def dense(self) -> int:
        """Bytes of all tensors of the small model, with the zeros that the file leaves out."""
        return 12 * MEBIBYTE + 4 * self.file + self.model

    @property
    def call(self) -> int:
        """Bytes that a call of a program may take beyond what its inputs justify."""
        return 16 * MEBIBYTE + 4 * self.file + self.model

    def check_text(self, text: bytes, what: str) -> None:
        """Refuse JSON that would take too much memory once it is parsed.

        Raises:
            FileFormatError: It has too many objects and lists, or too many entries.
        """
        needed = 200 * (text.count(b"[") + text.count(b"{")) + 60 * text.count(b",")
        if needed > self.parsed:
            raise FileFormatError(
                f"{what} would take about {needed:,} bytes of memory; {self.parsed:,} are possible for a file of "
                f"{self.file:,} bytes."
            )

    def check_nodes(self, count: int) -> None:
        """Refuse a program that is too long for its file."""
        if count > self.nodes:
            raise FileFormatError(
                f"the program has {count:,} nodes; {self.nodes:,} are possible in a file of {self.file:,} bytes."
            )

    def check_indices(self, count: int) -> None:
        """Refuse lists of indices that are too long for their file."""
        if count > self.indices:
            raise FileFormatError(
                f"the plan names {count:,} indices; {self.indices:,} are possible in a file of {self.file:,} bytes."
            )

    def check_dense(self, needed: int) -> None:
        """Refuse tensors that are too large for their file and the model that was given."""
        if needed > self.dense:
            hint = "" if self.model else "; if this is intended, pass a fresh model of its class: load(path, model=...)"
            raise FileFormatError(
                f"the model would take {needed:,} bytes of memory; {self.dense:,} are possible for a file of "
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

"""The sizes in a trace with free sizes are formulas; a trace stops when one of them becomes too long."""

from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vbdrop._torch_compat import pytree

LONGEST = 64
"""The most terms that the formula of a size may have.

Each padding to a multiple of a window multiplies the formula, and torch simplifies formulas as trees: at 80 terms one
view takes seconds, at 200 terms minutes.
"""


class LongFormulaError(Exception):
    """Raised where the formula of a size has become too long to be followed."""


class ShortFormulas(TorchFunctionMode):
    """Stops a trace before the first operation that reads a tensor with too long a formula among its sizes.

    Raises:
        LongFormulaError: At that operation.

    Example:
        >>> with ShortFormulas():
        ...     torch.zeros(2, 3).sum()
        tensor(0.)
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        for leaf in pytree.tree_leaves((args, kwargs)):
            for size in leaf.shape if isinstance(leaf, Tensor) else ():
                if isinstance(size, torch.SymInt) and terms(size.node.expr) > LONGEST:
                    raise LongFormulaError(f"a size has more than {LONGEST} terms before {function.__name__}")
        return function(*args, **(kwargs or {}))


def terms(formula: Any) -> int:  # noqa: ANN401 -- an expression of sympy
    """The number of symbols, numbers and operations in a formula; counting stops above `LONGEST`.

    Example:
        >>> import sympy
        >>> terms(3 * sympy.Symbol("s0") + 1)
        5
    """

    def each(part: Any) -> Any:  # noqa: ANN401
        yield part
        for inner in part.args:
            yield from each(inner)

    return sum(1 for _ in islice(each(formula), LONGEST + 1))

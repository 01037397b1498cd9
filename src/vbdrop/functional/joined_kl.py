"""The KL of a layer's weights from the pass over them that its training forward makes anyway.

The forward computes the KL beside the layer's output, and the backward adds the KL's gradient where it has the weights'
at hand: a step then reads and writes tensors of the weight's size once each way. A loss that contains both the output
and the KL takes it from here; `vbdrop.kl` computes it apart, so that each of the two can be differentiated alone.
"""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native


class JoinedKL:
    """What the last forward of a layer left for the loss: its KL, to be taken once.

    It belongs to the parameters as they were, and it is part of a graph that can be gone through once; copies of a
    layer start without. Where two forwards left one each, it is not known which a loss belongs to, and none is given.

    Example:
        >>> joined, theta, log_sigma2 = JoinedKL(), torch.ones(2), torch.zeros(2)
        >>> joined.put(torch.tensor(0.7), theta, log_sigma2)
        >>> joined.take(theta, log_sigma2)
        tensor(0.7000)
        >>> joined.take(theta, log_sigma2) is None
        True
    """

    __slots__ = ("_kl", "_states", "_waiting")

    def __init__(self) -> None:
        self._kl: Tensor | None = None
        self._states: tuple[tuple[int, int], ...] = ()
        self._waiting = False

    def put(self, kl: Tensor, theta: Tensor, log_sigma2: Tensor) -> None:
        """Leave a KL.

        Only where a loss will follow: not without gradients, and not where a checkpointed forward runs again, which is
        inside a backward.
        """
        alone = not self._waiting or _is_spent(self._kl)
        follows = torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1
        self._kl, self._states = kl if follows and alone else None, (_state(theta), _state(log_sigma2))
        self._waiting = True

    def take(self, theta: Tensor, log_sigma2: Tensor) -> Tensor | None:
        """Return the KL and forget it; None if there is none of this moment, or if its graph has been gone through."""
        kl, self._kl, self._waiting = self._kl, None, False
        return kl if not _is_spent(kl) and self._states == (_state(theta), _state(log_sigma2)) else None

    def clear(self) -> None:
        """Forget the KL: a forward that leaves none has come after it."""
        self._kl = None

    def __reduce__(self) -> tuple[type["JoinedKL"], tuple[()]]:
        return JoinedKL, ()


def spend(ctx: Any) -> None:  # noqa: ANN401 -- torch's own context object
    """Note that the backward of a forward has run, so that its KL is not given any more."""
    ctx.spent = True


def _is_spent(kl: Tensor | None) -> bool:
    """Whether the backward has run that a KL belongs to: its context is what autograd shows as ``grad_fn``."""
    return kl is not None and getattr(kl.grad_fn, "spent", False)


def _state(parameter: Tensor) -> tuple[int, int]:
    """What changes with a parameter's values: by an operation in place, or by other memory behind it."""
    return parameter._version, parameter.data_ptr()


def can_join(theta: Tensor, log_sigma2: Tensor) -> bool:
    """Whether the kernels can take both parameters, and both are trained.

    It does not depend on where the forward runs: a checkpointed one must draw the same noise the second time.
    """
    return theta.requires_grad and log_sigma2.requires_grad and native.usable(theta, log_sigma2)

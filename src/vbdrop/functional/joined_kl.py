"""The KL of a layer's weights from the pass over them that its training forward makes anyway.

The forward computes the KL beside the layer's output, and the backward adds the KL's gradient where it has the weights'
at hand: a step then reads and writes tensors of the weight's size once each way. A loss that contains both the output
and the KL takes it from here; `vbdrop.kl` computes it apart, so that each of the two can be differentiated alone.
"""

import torch
from torch import Tensor

from vbdrop.functional import native


class JoinedKL:
    """What the last forward of a layer left for the loss: its KL, to be taken once.

    It belongs to the parameters as they were, and it is part of a graph: copies of a layer start without.

    Example:
        >>> joined, theta, log_sigma2 = JoinedKL(), torch.ones(2), torch.zeros(2)
        >>> joined.put(torch.tensor(0.7), theta, log_sigma2)
        >>> joined.take(theta, log_sigma2)
        tensor(0.7000)
        >>> joined.take(theta, log_sigma2) is None
        True
    """

    __slots__ = ("_kl", "_states")

    def __init__(self) -> None:
        self._kl: Tensor | None = None
        self._states: tuple[tuple[int, int], ...] = ()

    def put(self, kl: Tensor, theta: Tensor, log_sigma2: Tensor) -> None:
        """Leave a KL, in place of one that nobody took.

        Only where a loss will follow: not without gradients, and not where a checkpointed forward runs again, which is
        inside a backward.
        """
        follows = torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1
        self._kl, self._states = kl if follows else None, (_state(theta), _state(log_sigma2))

    def take(self, theta: Tensor, log_sigma2: Tensor) -> Tensor | None:
        """Return the KL and forget it; None if there is none, or if the parameters have changed since."""
        kl, self._kl = self._kl, None
        return kl if self._states == (_state(theta), _state(log_sigma2)) else None

    def __reduce__(self) -> tuple[type["JoinedKL"], tuple[()]]:
        return JoinedKL, ()


def _state(parameter: Tensor) -> tuple[int, int]:
    """What changes with a parameter's values: by an operation in place, or by other memory behind it."""
    return parameter._version, parameter.data_ptr()


def can_join(theta: Tensor, log_sigma2: Tensor) -> bool:
    """Whether the kernels can take both parameters, and both are trained.

    It does not depend on where the forward runs: a checkpointed one must draw the same noise the second time.
    """
    return theta.requires_grad and log_sigma2.requires_grad and native.usable(theta, log_sigma2)

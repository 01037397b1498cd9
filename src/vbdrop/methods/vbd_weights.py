r"""Variational Bayesian dropout on weights (Liu et al., CVPR 2019, section 5.1): sparse weights.

The framework of sparse variational dropout with the penalty of the hierarchical prior (Eq. 18):

.. math:: \sum_{kd}\tfrac12\log(1 + \alpha_{kd}^{-1}), \qquad \sigma_{kd}^2 = \alpha_{kd}\theta_{kd}^2 \text{ free},

divided by the number of examples. A weight is dead if :math:`\log\alpha \ge` ``threshold``. With ``shrink_every``,
units whose weights all stay dead are removed while the network trains.

Published (Table 4): LeNet-300-100: low test error 1.67 %, 98.7-97.4-87.4 % dead, 66 times fewer weights; high
sparsity 1.76 %, 98.9-98.1-90.9 %, 81 times. LeNet-5: 0.74 %, 69-98-99.7-95 %, 198 times; 0.81 %, 65-98-99.8-97 %, 290
times. A rerun by others on LeNet-300-100: 45.6 times at 1.73 %.

Deviations: what distinguishes the two operating points is not published; here it is ``kl_weight`` (and ``threshold``).
The rest is as for sparse VD: torch's initial weights, a warm-up in shares of the run, no clipping of ``log_alpha``.
With the same settings this penalty pushes less than that of sparse VD, at every alpha. The stages ``pretrain`` and
``refine`` are ours; with 0 for both and a ``kl_weight`` of 1, the run is the published one. The other options of
`vbdrop.methods.shared.noisy_weights` are also ours, and off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from vbdrop.methods.shared.checks import check_choice
from vbdrop.methods.shared.noisy_weights import NoisyWeights
from vbdrop.train.method import option


@dataclass(frozen=True)
class VBDWeights(NoisyWeights):
    """Noisy weights under the hierarchical prior.

    Attributes:
        prior: ``"hierarchical"``, the paper's; or ``"inverse_gamma"``, another hyper-prior on a weight's variance, with
            its defaults. It pulls large weights about three times as hard, and needs a smaller ``kl_weight``.

    Example:
        >>> from torch import nn
        >>> VBDWeights().build(nn.Linear(4, 2)).noise.prior
        Hierarchical()
    """

    name: ClassVar[str] = "vbd-weights"
    title: ClassVar[str] = "VBD"
    paper: ClassVar[str] = "Liu et al. 2019, CVPR"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"kl_weight": (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)}

    prior: Literal["hierarchical", "inverse_gamma"] = option("hierarchical")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "prior", ("hierarchical", "inverse_gamma"))

r"""Sparse variational dropout (Molchanov, Ashukha and Vetrov, ICML 2017).

Every weight has :math:`q(w) = N(\theta, \sigma^2)` with both free (additive noise), the log-uniform prior, and the KL

.. math:: \tfrac12\log(1 + \alpha^{-1}) + k_1\,(1 - S(k_2 + k_3\log\alpha)), \qquad \alpha = \sigma^2/\theta^2,

summed over the weights and divided by the number of examples. The outputs are sampled by local reparameterization. A
weight is dead if :math:`\log\alpha \ge 3`: its mean counts as zero, at test time and already in training. With
``shrink_every``, units whose weights all stay dead are removed while the network trains.

Published: LeNet-300-100, 1.92 %, 98.9-97.2-62.0 % dead, 68 times fewer weights; LeNet-5, 0.75 %, 67-98-99.8-95 %, 280
times (Liu et al., Table 4, print 1.94 % for the first). Counted by neurons (Table 5; the same training, removing units
whose weights are all dead): LeNet-500-300, 1.57 %, 537-217-130; LeNet-5, 17-32-329-75. Reruns by others on
LeNet-300-100: 46 times.

Deviations: torch's initial weights instead of N(0, 0.01^2), with which many weights start near the threshold; the log
variance starts at -10, or lower if a weight would start dead. The KL is held at 0 for 2.5 % of the run and reaches its
full weight at 10 % (the authors: 5 and 20 of 200 epochs). ``log_alpha`` is not clipped. Inputs are in [0, 1], and no
mean image is subtracted. A dead weight of a convolution loses only its mean in training, like that of a linear layer;
in the authors' code it also loses its variance, as with ``mask_variances=True``. The stages ``pretrain`` and ``refine``
are ours; with 0 for both and a ``kl_weight`` of 1, the run is otherwise the published one. The other options of
`vbdrop.methods.shared.noisy_weights` are also ours, and off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from vbdrop.methods.shared.noisy_weights import NoisyWeights


@dataclass(frozen=True)
class SparseVD(NoisyWeights):
    """Noisy weights under the log-uniform prior.

    Example:
        >>> from torch import nn
        >>> SparseVD().build(nn.Linear(4, 2)).noise.prior
        LogUniform()
    """

    name: ClassVar[str] = "sparse-vd"
    title: ClassVar[str] = "Sparse VD"
    paper: ClassVar[str] = "Molchanov et al. 2017, ICML"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"kl_weight": (0.4, 0.6, 1.0, 1.5, 2.0, 2.4)}

    @property
    def prior(self) -> str:
        """The log-uniform prior, by Molchanov's approximation."""
        return "log_uniform"

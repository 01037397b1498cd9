"""The shared part of sparse variational dropout and VBD on weights, which differ only in their prior."""

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from vbdrop._torch_compat import ConvNd
from vbdrop.compression.evidence import evidence_threshold
from vbdrop.convert import convert_, deterministic_, freeze_dead_, param_groups
from vbdrop.layers import Gate, Units, Variational, Weights
from vbdrop.layers.variational import NO_VARIANCE
from vbdrop.methods.shared.averaging import add_averages_, average_, remove_averages_, use_averages_
from vbdrop.methods.shared.checks import check_flag, check_not_negative, check_number, check_positive, check_share
from vbdrop.methods.shared.distilling import add_teacher_, distillation_loss, remove_teacher_, teach_
from vbdrop.methods.shared.input_modules import unit_gates
from vbdrop.methods.shared.losses import variational_loss, weighted_loss
from vbdrop.methods.shared.run_parts import first_step, started, starts_next
from vbdrop.methods.shared.stages import Staged
from vbdrop.train.method import Batch, Family, Step, option
from vbdrop.train.sparsity import weight_layers


@dataclass(frozen=True)
class NoisyWeights(Staged):
    """Every weight learns its own alpha, and dies if it carries only noise. Abstract: a subclass sets the prior.

    Attributes:
        kl_weight: The factor on the KL; larger values make the network sparser.
        threshold: The ``log_alpha`` at or above which a weight is dead in training.
        cut: The same for the final network, and from the start of ``refine``, if it is lower; None for the same as in
            training. A weight that is masked in training rarely comes back; at the end it does not have to.
        log_sigma2: The initial log variance of a weight.
        hold: The share of the run, after ``pretrain``, for which the KL is held at 0.
        ramp: The share of the run over which it then rises.
        rate_lr: The learning rate of the variances, as a factor on that of the weights.
        pretrain: The first share of the run, in which the plain network trains, without noise; 0 for none.
        refine: The last share of the run, in which the KL is off, dead weights stay dead, and the survivors train with
            the noise that they have; 0 for none.
        average: The last share of the run, over which means and biases are averaged; the averages then replace the
            survivors' last values; 0 for none.
        initial_scale: A factor on torch's initial weights; biases are not scaled.
        unit_kl: The factor on the KL of gates on units, as in `vbd-gates`, in addition to the noisy weights; 0 for no
            gates. They have the threshold of the weights, so that one threshold decides what is dead.
        mask_variances: Whether a dead weight of a convolution also loses its variance in training, not only its mean;
            only the KL then moves it.
        cut_nats: At the start of ``refine``, or at the end if there is none, the network is cut at the lowest threshold
            that raises the loss per example by at most this many nats, as estimated without data from the evidence that
            is lost; None for no such cut.
        distill: After ``pretrain``, the weight of the distance from the outputs of the plain network at its end: see
            `vbdrop.methods.shared.distilling`; 0 for none.

    Example:
        >>> from vbdrop.methods import VBDWeights
        >>> VBDWeights(threshold=2.0).build(nn.Linear(4, 2)).noise.threshold
        2.0
    """

    family: ClassVar[Family] = "weights"
    kl_weight: float = 2.0
    threshold: float = 3.0
    log_sigma2: float = -10.0
    hold: float = 0.025
    ramp: float = 0.075
    rate_lr: float = 1.0
    pretrain: float = option(0.2, absent=0.0)
    refine: float = option(0.3, absent=0.0)
    cut: float | None = option(None)
    average: float = option(0.0)
    initial_scale: float = option(1.0)
    unit_kl: float = option(0.0)
    mask_variances: bool = option(False)
    cut_nats: float | None = option(None)
    distill: float = option(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "threshold", "log_sigma2", *(() if self.cut is None else ("cut",)))
        check_flag(self, "mask_variances")
        check_not_negative(self, "kl_weight", "unit_kl", "distill", *(() if self.cut_nats is None else ("cut_nats",)))
        check_share(self, "hold", "ramp", "average", zero=True)
        check_positive(self, "rate_lr", "initial_scale")
        name = type(self).__name__
        if self.cut is not None and self.cut_nats is not None:
            raise ValueError(f"`cut` and `cut_nats` of {name} both set the final threshold; got {self.cut} and "
                             f"{self.cut_nats}.")  # fmt: skip
        if self.distill and not self.pretrain:
            raise ValueError(f"`distill` of {name} needs a plain network to learn from: `pretrain` above 0; got 0.")

    @property
    @abstractmethod
    def prior(self) -> str:
        """The name of the weights' prior."""

    @property
    def final_threshold(self) -> float | None:
        """The final threshold: never higher than in training."""
        return None if self.cut is None else min(self.cut, self.threshold)

    @property
    def shrinks(self) -> bool:
        """Not if weights are averaged: when units are removed, constants move into other weights and biases.

        Nor with a teacher, which stays whole.
        """
        return not self.average and not self.distill

    def build(self, model: nn.Module) -> nn.Module:
        """Convert the model, and add its teacher and the buffers for the averages."""
        plain = copy.deepcopy(model) if self.distill else model
        super().build(model)
        if self.distill:
            add_teacher_(model, plain)
        if self.average:
            add_averages_(model)
        return model

    def convert(self, model: nn.Module) -> None:
        """Convert every layer with `vbdrop.Weights`, and with `vbdrop.Units` if units have gates."""
        if self.initial_scale != 1:
            _scale_(model, self.initial_scale)
        weights = Weights(self.prior, self.threshold, self.log_sigma2)
        gates = [unit_gates(Units(threshold=self.threshold), model)] if self.unit_kl else []
        convert_(model, weights, *gates)

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Put the variances into their own group, without weight decay."""
        return param_groups(model, lr=lr, rate_lr=self.rate_lr * lr, weight_decay=0.0)

    def likelihood(self, model: nn.Module, batch: Batch, values: Mapping[str, Tensor] = MappingProxyType({})) -> Tensor:
        """The cross-entropy and, if there is a teacher, the distance from its outputs.

        Args:
            model: The model.
            batch: The examples.
            values: Name -> the tensor that replaces a parameter.
        """
        outputs = functional_call(model, dict(values), batch.inputs) if values else model(batch.inputs)
        nll = F.cross_entropy(outputs, batch.targets)
        return nll + self.distill * distillation_loss(model, batch.inputs, outputs) if self.distill else nll

    def cut_(self, model: nn.Module, step: Step) -> None:
        """Permanently remove what is dead, or what costs little evidence."""
        if self.cut_nats is None:
            super().cut_(model, step)
        elif self.kl_weight:
            nats = self.cut_nats * step.n_train / self.kl_weight
            freeze_dead_(model, min(self.threshold, evidence_threshold(model, nats)))

    def penalised_loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy under one draw of the outputs, and the KL over the number of examples."""
        hold = self.pretrain + self.hold
        nll = self.likelihood(model, batch, _without_dead_variances(model) if self.mask_variances else {})
        if not self.unit_kl:
            return variational_loss(model, nll, step, weight=self.kl_weight, hold=hold, ramp=self.ramp)
        return weighted_loss(model, nll, step, self._factor, hold=hold, ramp=self.ramp)

    def _factor(self, module: Variational) -> float:
        """The factor on the KL of a layer, or of a gate."""
        return self.unit_kl if isinstance(module, Gate) else self.kl_weight

    def after_step(self, model: nn.Module, step: Step) -> None:
        """Change stages, and update the averages; after the last step, put them into the model, and cut it."""
        super().after_step(model, step)
        if self.distill and starts_next(self.pretrain, step):
            teach_(model)
        last = step.index + 1 == step.steps
        if self.average and started(1 - self.average, step):
            average_(model, 1 + step.index - first_step(1 - self.average, step))
            if last:
                use_averages_(model)
        if last and (self.cut is not None or (self.cut_nats is not None and not self.refine)):
            self.cut_(model, step)
        if last:
            remove_teacher_(model)

    def finish(self, model: nn.Module) -> nn.Module:
        """The mean network with the dead weights at zero, in place."""
        deterministic_(remove_teacher_(model), self.final_threshold)
        return remove_averages_(model) if self.average else model


def _without_dead_variances(model: nn.Module) -> dict[str, Tensor]:
    """Name -> value: the means and variances of all convolutions, without those of dead weights."""
    masked = {}
    for path, module in model.named_modules():
        if isinstance(module, Variational) and isinstance(module, ConvNd):
            (entry,) = module.variational()
            dead = entry.dead()
            masked[f"{path}.weight".lstrip(".")] = entry.mean.masked_fill(dead, 0.0)
            masked[f"{path}.log_sigma2".lstrip(".")] = entry.rate.masked_fill(dead, NO_VARIANCE)
    return masked


@torch.no_grad()
def _scale_(model: nn.Module, factor: float) -> None:
    """Multiply the weights of every linear and convolutional layer."""
    for _, layer in weight_layers(model):
        layer.weight.mul_(factor)

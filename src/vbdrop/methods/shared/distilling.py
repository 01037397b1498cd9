r"""Distillation (Hinton, Vinyals and Dean 2015): the network also learns the outputs of the plain one it came from.

The teacher is the plain network at the end of its stage, kept as buffers inside the first layer, so that a checkpoint
holds it. With its logits t, the network's own s and the temperature T, the loss gains

.. math:: T^2\, KL\big(\mathrm{softmax}(t/T)\,\Vert\,\mathrm{softmax}(s/T)\big),

a mean over the batch.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vbdrop.train.sparsity import weight_layers

TEMPERATURE = 2.0
"""Softens the teacher's outputs, so that the order of the wrong classes counts."""

_TEACHER = "teacher"


def add_teacher_(model: nn.Module, plain: nn.Module) -> None:
    """Give a converted model a copy of the plain network, without parameters that an optimizer would change.

    Args:
        model: The converted model.
        plain: The network from which it was converted.

    Example:
        >>> plain = nn.Sequential(nn.Linear(4, 2))
        >>> model = copy.deepcopy(plain)
        >>> add_teacher_(model, plain)
        >>> len(list(model.parameters())), teacher_of(model) is not None
        (2, True)
    """
    teacher = copy.deepcopy(plain).eval()
    for module in teacher.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                delattr(module, name)
                module.register_buffer(name, parameter.detach())
    _holder(model).add_module(_TEACHER, teacher)


def teacher_of(model: nn.Module) -> nn.Module | None:
    """The teacher; None if there is none.

    Example:
        >>> teacher_of(nn.Linear(4, 2)) is None
        True
    """
    return _holder(model)._modules.get(_TEACHER)


@torch.no_grad()
def teach_(model: nn.Module) -> None:
    """Copy what the model has learned into its teacher.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> add_teacher_(model, copy.deepcopy(model))
        >>> _ = nn.init.ones_(model[0].weight)
        >>> teach_(model)
        >>> teacher_of(model)[0].weight[0].tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    teacher = teacher_of(model)
    if teacher is not None:
        learned = model.state_dict()
        teacher.load_state_dict({name: learned[name].clone() for name in teacher.state_dict()})


def remove_teacher_(model: nn.Module) -> nn.Module:
    """Remove the teacher, if there is one.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> add_teacher_(model, copy.deepcopy(model))
        >>> list(remove_teacher_(model).state_dict())
        ['0.weight', '0.bias']
    """
    _holder(model)._modules.pop(_TEACHER, None)
    return model


def distillation_loss(model: nn.Module, inputs: Tensor, logits: Tensor) -> Tensor:
    """How far the logits are from those of the model's teacher: zero where they agree.

    Args:
        model: A model with a teacher.
        inputs: The batch.
        logits: The model's own outputs for it.
    """
    teacher = teacher_of(model)
    if teacher is None:
        raise ValueError("`model` must have a teacher; call add_teacher_ first.")
    with torch.no_grad():
        expected = (teacher.eval()(inputs) / TEMPERATURE).log_softmax(1)
    own = (logits / TEMPERATURE).log_softmax(1)
    return TEMPERATURE**2 * F.kl_div(own, expected, reduction="batchmean", log_target=True)


def _holder(model: nn.Module) -> nn.Module:
    """The layer that keeps the teacher: a container would call it in its forward."""
    return next(layer for _, layer in weight_layers(model))

"""Ablations: VBD on weights with settings changed, to measure the effect of each change.

They are evaluated on the validation split, since the results decide what is kept: the test data play no part. The
networks are those of Table 4, with the epochs of its trials, so that a setting that is tried there is run only once.
Each row states all settings of its recipe, so that its meaning does not change with the method's defaults: the
published one, which has one stage, or the default, which has three. The default and every change of it that sparse VD
can have are also tried with sparse VD, so that the baseline is treated equally.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from vbdrop.experiments.paper_tables import LENET_5_CAFFE, LENET_300_100
from vbdrop.experiments.protocol import Protocol, Row

ONE_STAGE: Mapping[str, Any] = MappingProxyType(
    {
        "kl_weight": 1.0,
        "threshold": 3.0,
        "cut": None,
        "log_sigma2": -10.0,
        "hold": 0.025,
        "ramp": 0.075,
        "rate_lr": 1.0,
        "pretrain": 0.0,
        "refine": 0.0,
        "average": 0.0,
        "initial_scale": 1.0,
        "unit_kl": 0.0,
    }
)
"""The published recipe of sparse VD: one stage, all options off. The defaults include what has helped since."""

THREE_STAGES: Mapping[str, Any] = MappingProxyType({**ONE_STAGE, "pretrain": 0.2, "kl_weight": 2.0, "refine": 0.3})
"""The recipe in three stages, the default of VBD and sparse VD today."""

CONVOLUTIONS = ("lenet-5",)
"""The columns of changes that concern convolutions alone."""


def _change(key: str, title: str, question: str, **changed: Any) -> Row:  # noqa: ANN401 -- hyper-parameters
    """A change of the recipe in three stages."""
    title = f"Three stages: {title}"
    return Row(
        key, title, "vbd-weights", {**THREE_STAGES, **changed}, ours=True, base="three-stages", question=question
    )


_RECIPES = (
    Row("one-stage", "VBD, one stage (base)", "vbd-weights", ONE_STAGE, ours=True),
    Row(
        "three-stages",
        "VBD, three stages (base)",
        "vbd-weights",
        THREE_STAGES,
        ours=True,
        base="one-stage",
        question="Does it pay to start from a plain network, press it with twice the KL, and refine what is left? It "
        "is the default of VBD and sparse VD today.",
    ),
)

_CHANGES = (
    _change("no-start", "no plain start", "What does it bring to train without noise at first?", pretrain=0.0),
    _change(
        "no-refining",
        "no refining",
        "What does it bring to train the survivors in the end, with noise and without the KL?",
        refine=0.0,
    ),
    _change("low", "half the pressure", "How much larger and better is the network?", kl_weight=1.0),
    _change("lower", "a quarter of it", "And with still less?", kl_weight=0.5),
    _change(
        "late",
        "late KL",
        "Does it help to raise the KL slowly, over three tenths of the run, once the plain network is trained?",
        hold=0.05,
        ramp=0.3,
    ),
    _change("units", "units and weights", "Does a penalty on whole units, beside that on weights, help?", unit_kl=5.0),
    _change(
        "evidence",
        "cut by the evidence",
        "Does it help to lower the threshold before refining until the cut costs 0.005 nats of evidence per example?",
        cut_nats=0.005,
    ),
    _change(
        "distilled",
        "distilled (extra)",
        "Does it also help to learn the outputs of the plain network? No row of Table 4 has this extra.",
        distill=1.0,
    ),
)

_HYPER_PRIOR = _change(
    "inverse-gamma",
    "another hyper-prior",
    "A flat hyper-prior without bounds is improper. Does a proper one, an inverse gamma, do as well?",
    prior="inverse_gamma",
)
"""A change of VBD alone: the prior of sparse VD has no hyper-prior."""

_CONV = (
    Row("conv", "VBD, three stages, LeNet-5 (base)", "vbd-weights", THREE_STAGES, ours=True, only=CONVOLUTIONS),
    Row(
        "conv-masked",
        "Dead variances masked, LeNet-5",
        "vbd-weights",
        {**THREE_STAGES, "mask_variances": True},
        ours=True,
        base="conv",
        question="The authors of sparse VD also remove a convolution's dead weights from its variance. Does it help?",
        only=CONVOLUTIONS,
    ),
)

RIVALS = tuple(row.key for row in (*_RECIPES, *_CHANGES, *_CONV))
"""The rows that sparse VD also has: the two recipes, and every change that can be tried with it."""


def _twin(row: Row) -> Row:
    """The same change of sparse VD."""
    change = row.title.removeprefix("VBD, ")
    base = None if row.base is None else f"vd-{row.base}"
    title = f"Sparse VD, {change[0].lower()}{change[1:]}"
    return replace(row, key=f"vd-{row.key}", title=title, method="sparse-vd", ours=False, base=base, question="")


ABLATIONS: Mapping[str, Row] = MappingProxyType(
    {
        row.key: row
        for row in (
            *_RECIPES,
            *_CHANGES,
            _HYPER_PRIOR,
            *map(_twin, (*_RECIPES, *_CHANGES)),
            *_CONV,
            *map(_twin, _CONV),
        )
    }
)
"""Key -> the row, in the order of the table."""


def ablations(*, quick: bool = False) -> Protocol:
    """Return the protocol of the ablations.

    Args:
        quick: Its small version, :meth:`vbdrop.experiments.Protocol.small`.

    Example:
        >>> ablations().row("late").base
        'three-stages'
    """
    columns = tuple(
        replace(column, budget=replace(column.budget, epochs=column.budget.epochs // 2))
        for column in (LENET_300_100, LENET_5_CAFFE)
    )
    protocol = Protocol(
        number=None,
        title="VBD on weights, settings changed, on validation data",
        kind="ablation",
        columns=columns,
        rows=tuple(
            replace(row, knobs={}, replicated=True, only=row.only or (LENET_300_100.key,)) for row in ABLATIONS.values()
        ),
        on_validation=True,
    )
    return protocol.small() if quick else protocol

"""Ablations: VBD on weights with settings changed, to measure the effect of each change.

They are evaluated on the validation split, since the results decide what is kept: the test data play no part. The
network and the budget are those of Table 4. Each row states all settings of the base, so that its meaning does not
change with the method's defaults. The first rows change the published recipe, which has one stage; the others change
what became the default, which has three. The default and every change of it are also tried with sparse VD, so that the
baseline is treated equally.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from vbdrop.experiments.paper_tables import LENET_5_CAFFE, LENET_300_100
from vbdrop.experiments.protocol import Protocol, Row

EPOCHS = 100
"""The epochs of each run: those of Table 4. The table prints its own."""

BASE: Mapping[str, Any] = MappingProxyType(
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

STAGES: Mapping[str, Any] = MappingProxyType({**BASE, "pretrain": 0.2, "kl_weight": 2.0, "refine": 0.3})
"""The recipe in three stages, the default of VBD and sparse VD today."""

CONVOLUTIONS = ("lenet-5",)
"""The columns of changes that concern convolutions alone."""

CONV_EPOCHS = 30
"""The epochs of LeNet-5 here, half of those of Table 4: its runs are the most expensive."""


def _change(key: str, title: str, question: str, **changed: Any) -> Row:  # noqa: ANN401 -- hyper-parameters
    return Row(key, title, "vbd-weights", {**BASE, **changed}, ours=True, base="base", question=question)


def _recipe(key: str, title: str, question: str, **changed: Any) -> Row:  # noqa: ANN401 -- hyper-parameters
    """A change of the recipe in three stages."""
    return Row(key, title, "vbd-weights", {**STAGES, **changed}, ours=True, base="all-stages", question=question)


_VBD = (
    Row("base", "VBD, one stage (base)", "vbd-weights", BASE, ours=True),
    _change(
        "rate-lr-3",
        "Faster variances",
        "log_sigma2 starts at -10 and has a long way to go. Does a larger learning rate of its own help?",
        rate_lr=3.0,
    ),
    _change("rate-lr-10", "Much faster variances", "And a still larger one?", rate_lr=10.0),
    _change(
        "late-kl",
        "Late KL",
        "Does it help to learn the digits first, and to raise the KL from a quarter to half of the run?",
        hold=0.25,
        ramp=0.25,
    ),
    _change("pretrain", "From a trained network", "Does it help to start from a plain network?", pretrain=0.3),
    _change(
        "small-init",
        "Small initial weights",
        "Does it help if most weights start close to death, as those of the authors of sparse VD do?",
        initial_scale=0.1,
    ),
    _change("average", "Averaged weights", "Do the averages over the last tenth of the run do better?", average=0.1),
    _change(
        "refine",
        "Survivors refined",
        "Does it help to train the survivors further, with noise and without the KL, while dead weights stay dead?",
        refine=0.3,
    ),
    _change("units", "Units and weights", "Does a penalty on whole units, beside that on weights, help?", unit_kl=5.0),
    _change(
        "inverse-gamma",
        "Another hyper-prior",
        "A flat hyper-prior without bounds is improper. Does a proper one, an inverse gamma, do as well?",
        prior="inverse_gamma",
    ),
    _change("pressure", "More pressure", "What does twice the KL cost, and what does it save?", kl_weight=2.0),
    _change(
        "pressure-refine",
        "More pressure, then refined",
        "Does refining win back what twice the KL costs?",
        kl_weight=2.0,
        refine=0.3,
    ),
    _change(
        "low-threshold",
        "Lower threshold, then refined",
        "At a log alpha of 0 a weight is as much noise as signal. Does refining win back what it costs to cut there?",
        threshold=0.0,
        refine=0.3,
    ),
    _change(
        "all-stages",
        "VBD, three stages (base)",
        "Does it pay to start from a plain network, press it with twice the KL, and refine what is left? It is the "
        "default of VBD and sparse VD today.",
        **{name: value for name, value in STAGES.items() if value != BASE[name]},
    ),
    _change(
        "cut",
        "Lower threshold in the end",
        "In training, weights above a log alpha of 3 are masked. Can those above -1 be removed at the end?",
        cut=-1.0,
    ),
    _change(
        "cut-refine",
        "The same, then refined",
        "Does refining win back what it costs to cut there?",
        cut=-1.0,
        refine=0.3,
    ),
    _change(
        "stages-cut",
        "Trained, pressed, cut, refined",
        "Are less pressure and a lower threshold before refining better than more pressure?",
        pretrain=0.2,
        kl_weight=1.5,
        cut=-1.0,
        refine=0.3,
    ),
)

_RECIPE = (
    _recipe("low", "Three stages: half the pressure", "How much larger and better is the network?", kl_weight=1.0),
    _recipe("lower", "Three stages: a quarter of it", "And still less?", kl_weight=0.5),
    _recipe(
        "late",
        "Three stages: late KL",
        "Does it help to raise the KL slowly, over three tenths of the run, once the plain network is trained?",
        hold=0.05,
        ramp=0.3,
    ),
    _recipe(
        "gates",
        "Three stages: units and weights",
        "Does a penalty on whole units, beside that on weights, help there?",
        unit_kl=5.0,
    ),
    _recipe(
        "evidence",
        "Three stages: cut by the evidence",
        "Does it help to lower the threshold before refining until the cut costs 0.005 nats of evidence per example?",
        cut_nats=0.005,
    ),
    _recipe(
        "distilled",
        "Three stages, distilled (extra)",
        "Does it also help to learn the outputs of the plain network? No other row has this extra.",
        distill=1.0,
    ),
)

_CONV = (
    Row("conv", "VBD, three stages, LeNet-5 (base)", "vbd-weights", STAGES, ours=True, only=CONVOLUTIONS),
    Row(
        "conv-masked",
        "Dead variances masked, LeNet-5",
        "vbd-weights",
        {**STAGES, "mask_variances": True},
        ours=True,
        base="conv",
        question="The authors of sparse VD also remove a convolution's dead weights from its variance. Does it help?",
        only=CONVOLUTIONS,
    ),
)

RIVALS = ("all-stages", "stages-cut", *(row.key for row in (*_RECIPE, *_CONV)))
"""The rows that sparse VD also has: the recipe and every change that is tried with it."""


def _twin(row: Row) -> Row:
    """The same change of sparse VD."""
    change = row.title.removeprefix("VBD, ")
    base = None if row.base is None else "vd" if row.base == "base" else f"vd-{row.base}"
    title = f"Sparse VD, {change[0].lower()}{change[1:]}"
    return replace(row, key=f"vd-{row.key}", title=title, method="sparse-vd", ours=False, base=base, question="")


ABLATIONS: Mapping[str, Row] = MappingProxyType(
    {
        row.key: row
        for row in (
            *_VBD,
            *_RECIPE,
            Row("vd", "Sparse VD, one stage (base)", "sparse-vd", BASE),
            *(_twin(row) for row in (*_VBD, *_RECIPE) if row.key in RIVALS),
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
        >>> ablations().row("late-kl").base
        'base'
    """
    columns = tuple(
        replace(column, budget=replace(column.budget, epochs=epochs))
        for column, epochs in ((LENET_300_100, EPOCHS), (LENET_5_CAFFE, CONV_EPOCHS))
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

"""What a report shows of a run besides its figures: noise, pictures, error against size, calibration.

The file ``details.json`` of a run is a few tens of kilobytes. It is made from the trained model when the run ends, or
later from the saved weights. Nothing in it depends on the clock or the machine's name.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.analysis.graph import trace
from vbdrop.compression import Plan
from vbdrop.compression.masking import masked_copy
from vbdrop.compression.summary import summarise
from vbdrop.experiments.config import Config
from vbdrop.experiments.counts import EXAMPLES, count
from vbdrop.experiments.pictures import first_layer, masks
from vbdrop.functional import upper_bounded
from vbdrop.models import MODELS
from vbdrop.objective import noisy_tensors
from vbdrop.train import Batch, evaluate
from vbdrop.train.evaluation import calibration_bins, predict_log_probabilities

VERSION = 1

LOWEST, HIGHEST, BIN_COUNT = -12.0, 12.0, 60
"""The range of the histogram of log alpha; values outside are counted separately. A dead weight can be near 80."""

SWEEP_STEPS, SWEEP_STEP = range(-16, 5), 0.5
"""The thresholds that are tried, in steps from the one that the run was trained with."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def details(config: Config, model: nn.Module, network: nn.Module, test: Batch) -> dict[str, Any]:
    """Gather the details of a trained model.

    Args:
        config: The settings of its run.
        model: The model as trained.
        network: The plain network that the method made from it.
        test: The examples that the run is evaluated on.

    Returns:
        The contents of ``details.json``.

    Example:
        >>> from vbdrop.experiments.config import make_method, resolve
        >>> from vbdrop.models import build
        >>> from vbdrop.train import Budget
        >>> run = resolve(make_method("plain", {}), model="lenet-5", data="digits", checksum="", budget=Budget())
        >>> network, test = build("lenet-5"), Batch(torch.rand(5, 1, 28, 28), torch.arange(5))
        >>> sorted(details(run, network, network, test))
        ['calibration', 'first_layer', 'masks', 'noise', 'run', 'sweep', 'version']
    """
    log_probabilities = predict_log_probabilities(network, test)
    right = log_probabilities.argmax(-1) == test.targets
    bins = calibration_bins(log_probabilities.amax(-1).exp(), right)
    return {
        "version": VERSION,
        "run": config.id,
        "noise": noise(model),
        "sweep": size_against_error(model, test),
        "first_layer": first_layer(network, MODELS[config.model].input_shape),
        "masks": masks(network),
        "calibration": [asdict(entry) for entry in bins],
    }


@torch.no_grad()
def noise(model: nn.Module) -> list[dict[str, Any]]:
    """Return the distribution of log alpha and of the dropout rates, for each noisy tensor.

    Example:
        >>> from vbdrop.layers import Rates
        >>> from vbdrop.convert import convert_
        >>> model = nn.Sequential(nn.Linear(8, 4))
        >>> _ = convert_(model, Rates(per="layer", rate=0.5))
        >>> [(each["name"], each["count"], round(each["p"], 3)) for each in noise(model)]
        [('0', 1, 0.5)]
    """
    found = []
    for name, entry in noisy_tensors(model):
        log_alpha = entry.log_alpha_full()
        if entry.log_alpha is not None and entry.log_alpha.numel() < log_alpha.numel():
            # shared by several weights, and counted once
            log_alpha = upper_bounded(entry.log_alpha.detach(), entry.prior.max_log_alpha)
        log_alpha = log_alpha.flatten()
        rates = torch.sigmoid(log_alpha.double())
        inside = log_alpha[(log_alpha >= LOWEST) & (log_alpha < HIGHEST)]
        found.append(
            {
                "name": name,
                "threshold": entry.threshold,
                "count": log_alpha.numel(),
                "lowest": LOWEST,
                "highest": HIGHEST,
                "below": int((log_alpha < LOWEST).sum()),
                "above": int((log_alpha >= HIGHEST).sum()),
                "counts": torch.histc(inside.float(), BIN_COUNT, LOWEST, HIGHEST).long().tolist(),
                "p": rates.mean().item(),
                "p_quantiles": _quantiles(rates),
            }
        )
    return found


def size_against_error(model: nn.Module, test: Batch) -> list[dict[str, Any]] | None:
    """Evaluate the model at thresholds around its own; None if nothing in it can die.

    Example:
        >>> size_against_error(nn.Linear(4, 2), Batch(torch.rand(5, 4), torch.zeros(5, dtype=torch.long))) is None
        True
    """
    own = next((entry.threshold for _, entry in noisy_tensors(model) if entry.threshold is not None), None)
    if own is None:
        return None
    points, traced = [], trace(masked_copy(model, own), (test.inputs[:EXAMPLES],))
    for threshold in [own + SWEEP_STEP * step for step in SWEEP_STEPS]:
        network = masked_copy(model, threshold)  # all shapes stay: the papers count the weights that are not zero
        counts = summarise(network, network.state_dict(), Plan(), {}).after
        points.append(
            {
                "threshold": threshold,
                "own": threshold == own,
                "error": evaluate(network, test).error,
                "weights": counts.weights,
                "nonzero": counts.nonzeros,
                "compact_weights": sum(layer.compact for layer in count(network, traced)),
                "bytes": counts.bytes,
            }
        )
    return points


def _quantiles(values: Tensor) -> Sequence[float]:
    ordered = values.sort().values
    return [ordered[round(share * (len(ordered) - 1))].item() for share in QUANTILES]

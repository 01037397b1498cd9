"""Tries one architecture, from `convert_` to ONNX, and records the results."""

import contextlib
import copy
import datetime
import tempfile
import time
import tomllib
import warnings
from collections.abc import Callable, Collection
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import vbdrop
from benchmarks.models.entry import Entry
from benchmarks.models.ownership import Dead, everything, owned, product_weights
from vbdrop.analysis.channel_groups import ChannelGroups
from vbdrop.compression import Compressed
from vbdrop.convert.shared_gates import PROJECTION
from vbdrop.exporting.latency import interleaved
from vbdrop.layers import Gate, SharedGate
from vbdrop.targets.layer_times import undisturbed

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"

KILLED = 0.3
"""The share of the units of each group that die."""

ROUNDS = 20
"""How many times the latency is measured."""

SPREAD = 0.1
"""How far scales, shifts and biases are moved from their initial values, which would hide mistakes: many are zero."""

FAINT = 1e-3
"""A parameter with a smaller mean magnitude starts near zero, like the last layer of some models."""

DEAD_LOG_SIGMA2 = 20.0
"""The log variance of a dead gate."""

ROUND_TO = 8
"""The multiple to which widths are rounded up in a second small model."""

MOST_REASONS = 6
"""The number of reasons that are kept."""

Row = dict[str, Any]
"""The figures of one entry."""

Inputs = tuple[Any, ...] | dict[str, Any]


def attempt(entry: Entry, without: Collection[str] = ()) -> Row:
    """Try an entry; the row records the error of a failed step under its name, and steps that need it are left out.

    Args:
        entry: What to try.
        without: Steps to leave out: ``"onnx"``, ``"latency"``.
    """
    row: Row = {"entry": entry.key, "note": entry.note, "date": datetime.date.today().isoformat()}
    row["versions"] = {"vbdrop": tomllib.loads(PROJECT.read_text())["project"]["version"]}
    row["versions"] |= {name: version(name) for name in ("torch", entry.library) if _has(name)}
    start = time.perf_counter()
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    with contextlib.suppress(_Stopped):
        _attempt(entry, row, without)
    row["seconds"] = round(time.perf_counter() - start, 1)
    return row


def _has(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


class _Stopped(Exception):  # noqa: N818 -- not an error; the row records it
    """A step that the others need has failed."""


def _step(row: Row, name: str, do: Callable[[], Any], *, needed: bool = True) -> Any:  # noqa: ANN401
    try:
        return do()
    except Exception as error:  # whatever a model or a package raises is a result
        lines = str(error).strip().splitlines()
        row.setdefault("errors", {})[name] = f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
        if needed:
            raise _Stopped from error
        return None


def _attempt(entry: Entry, row: Row, without: Collection[str]) -> None:
    model: nn.Module = _step(row, "make", entry.make)
    inputs = entry.inputs()
    _stir_(model)
    plain = copy.deepcopy(model).eval()
    sizes = product_weights(plain)
    report = _step(row, "convert", lambda: vbdrop.convert_(model, vbdrop.Units(), example_inputs=inputs))
    row["converted"], row["parameters"] = len(report.converted), _parameters(plain)
    row["in_the_way"] = _some(report.groups[0].left if report.groups else report.left)
    row["finite"] = _step(row, "train", lambda: _trains(model, inputs))
    dead: Dead = {}
    if report.groups:
        dead = _kill_(model, report.groups[0])
        row["groups"] = len(report.groups[0].groups)
        row["units"], row["killed"] = sum(map(len, dead.values())), sum(int(gone.sum()) for gone in dead.values())
    small: Compressed = _step(row, "compress", lambda: vbdrop.compress(model, inputs, recalibrate=False))
    _count(row, small, report.groups[0] if report.groups else None, dead, sizes)
    wanted = _outputs(model.eval(), inputs)
    row["difference"] = _difference(wanted, _outputs(small.model, inputs))
    with tempfile.TemporaryDirectory() as folder:
        _step(row, "load", lambda: _loads(row, entry, small, inputs, wanted, Path(folder)), needed=False)
        if "onnx" not in without:
            _step(row, "onnx", lambda: _exports(row, small, Path(folder)), needed=False)
    if "latency" not in without:
        rounded = _step(row, "round", lambda: _rounded(row, model, inputs))
        _step(row, "latency", lambda: _times(row, plain, small.model, rounded, inputs), needed=False)


@torch.no_grad()
def _stir_(model: nn.Module) -> None:
    """Move what starts at or near zero or one: biases, scales, faint heads, running means and variances."""
    for parameter in model.parameters():
        if parameter.dim() == 1 or float(parameter.abs().mean()) < FAINT:
            parameter.add_(SPREAD * torch.randn_like(parameter))
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.add_(SPREAD * torch.randn_like(buffer))
        if name.endswith("running_var"):
            buffer.mul_(1 + SPREAD * torch.rand_like(buffer))


def _trains(model: nn.Module, inputs: Inputs) -> bool:
    """Train one step; return whether the loss and all gradients are finite."""
    model.train()
    elbo = vbdrop.ELBO(model, n_train=1000)
    optimizer = torch.optim.SGD(vbdrop.param_groups(model, weight_decay=0.0), lr=1e-6)
    found = [value for value in _tensors(_call(model, inputs)) if value.requires_grad]
    loss = elbo(torch.stack([value.square().mean() for value in found]).sum())
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    finite = bool(loss.isfinite()) and all(bool(gradient.isfinite().all()) for gradient in gradients)
    optimizer.step()
    optimizer.zero_grad()
    return finite


@torch.no_grad()
def _kill_(model: nn.Module, found: ChannelGroups) -> Dead:
    """Kill a share of the units of each group, leaving at least one, and give the others random values."""
    generator = torch.Generator().manual_seed(1)
    dead: dict[int, Tensor] = {}
    for number, gate in gates_of(model, found).items():
        units = gate.weight.numel()
        gone = torch.zeros(units, dtype=torch.bool)
        gone[torch.randperm(units, generator=generator)[: min(round(KILLED * units), units - 1)]] = True
        dead[number] = gone
        gate.weight.copy_(0.5 + torch.rand(units, generator=generator))
        gate.log_sigma2[gone] = DEAD_LOG_SIGMA2
    return {number: dead.get(number, torch.zeros(group.units).bool()) for number, group in enumerate(found.groups)}


def gates_of(model: nn.Module, found: ChannelGroups) -> dict[int, Gate]:
    """The gate of each group, in the layers and normalisations that read it."""
    gates: dict[int, Gate] = {}
    for path, members in (found.readers | {path: members for path, (_, members) in found.norms.items()}).items():
        shared = model.get_submodule(path.removesuffix(f".{PROJECTION}"))._modules.get("gate")
        if isinstance(shared, SharedGate):
            numbers = [number for number in dict.fromkeys(members[:, 0].tolist()) if number >= 0]
            gates.update(zip(numbers, shared.all_gates, strict=True))
    return gates


def _count(row: Row, small: Compressed, found: ChannelGroups | None, dead: Dead, sizes: dict[str, int]) -> None:
    """Record what the groups own of the model, what the dead units own, and how much of that is gone."""
    uses, after = small.plan.positions, {name: tensor.numel() for name, tensor in small.model.state_dict().items()}
    macs = {name: uses.get(name, 0) * size for name, size in sizes.items()}
    row["parameters_after"], row["left"] = _parameters(small.model), _some(small.left)
    row["macs"] = sum(macs.values())
    row["macs_after"] = sum(uses.get(name, 0) * after.get(name, 0) for name in sizes)
    row["own_forward"] = small.plan.program is None
    row["owned"] = row["owned_macs"] = 0.0
    if found is None:
        return
    own = owned(found, everything(found), sizes)
    row["owned"] = sum(own.values()) / max(sum(sizes.values()), 1)
    by_use = sum(uses.get(name, 0) * count for name, count in own.items())
    row["owned_macs"] = by_use / max(row["macs"], 1)
    wanted = owned(found, dead, sizes)
    gone = sum(min(count, sizes[name] - after.get(name, 0)) for name, count in wanted.items())
    gone = min(gone, row["parameters"] - row["parameters_after"])
    row["gone"] = gone / max(sum(wanted.values()), 1)


def _loads(row: Row, entry: Entry, small: Compressed, inputs: Inputs, wanted: list[Tensor], folder: Path) -> None:
    row["bytes"] = small.save(folder / "small.safetensors")
    loaded = vbdrop.load(folder / "small.safetensors", model=entry.make())
    row["loaded_difference"] = _difference(wanted, _outputs(loaded, inputs))


def _exports(row: Row, small: Compressed, folder: Path) -> None:
    exported = vbdrop.export(small, folder / "small.onnx")
    row["onnx_difference"], row["onnx_verified"] = exported.difference, exported.verified


def _rounded(row: Row, model: nn.Module, inputs: Inputs) -> nn.Module:
    """The small model with widths that are multiples of `ROUND_TO`, if they were not already whole."""
    small = vbdrop.compress(model, inputs, recalibrate=False, round_to=ROUND_TO).model
    row["rounded_difference"] = _difference(_outputs(model, inputs), _outputs(small, inputs))
    row["rounded_parameters"] = _parameters(small)
    return small


def _times(row: Row, plain: nn.Module, small: nn.Module, rounded: nn.Module, inputs: Inputs) -> None:
    """The latency of both small models as a share of that of the given model, on one thread."""
    models = {"before": plain, "latency": small, "rounded_latency": rounded}
    with torch.inference_mode():
        seconds = interleaved({name: partial(_timed, model, inputs) for name, model in models.items()}, ROUNDS)
    before = undisturbed(seconds.pop("before"))
    row["milliseconds"] = 1e3 * before
    row.update((name, undisturbed(times) / before) for name, times in seconds.items())


def _timed(model: nn.Module, inputs: Inputs, _: int) -> None:
    _call(model, inputs)


def _call(model: nn.Module, inputs: Inputs) -> Any:  # noqa: ANN401 -- what a model returns
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def _tensors(result: Any) -> list[Tensor]:  # noqa: ANN401
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _outputs(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    with torch.no_grad():
        return _tensors(_call(model, inputs))


def _difference(wanted: list[Tensor], got: list[Tensor]) -> float:
    """The largest difference, relative to the largest number of the same output."""
    pairs = zip(wanted, got, strict=True)
    return max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-12)) for a, b in pairs)


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _some(reasons: dict[str, str]) -> dict[str, str]:
    """The first few distinct reasons, each with one place."""
    by_reason: dict[str, str] = {}
    for place, reason in reasons.items():
        by_reason.setdefault(reason, place or "the model")
    return {place: reason for reason, place in list(by_reason.items())[:MOST_REASONS]}

"""The settings of the runs, and their results."""

from collections.abc import Sequence

from vbdrop.report.blocks import Block, Note, TableBlock
from vbdrop.report.reading import Run
from vbdrop.report.wording import DATA, NETWORKS, thousands, times


def overview(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Lay out the settings and the figures, one column per run."""
    facts = [{**_settings(run), **_figures(run), **_origin(run)} for run in runs]
    names = list(dict.fromkeys(name for each in facts for name in each))
    rows = tuple((name, *(each.get(name, "–") for each in facts)) for name in names)
    strong = frozenset(index for index, row in enumerate(rows) if row[0] in ("Error", "Remaining weights"))
    blocks: list[Block] = [TableBlock("Settings, results, and the machine.", ("", *labels), rows, strong=strong)]
    for run, label in zip(runs, labels, strict=True):
        if run.diverged:
            epoch = run.result["diverged_in_epoch"]
            text = f"{label}: the loss became infinite in epoch {epoch}, so there are no results."
            blocks.append(Note(text, wide=True))
    return blocks


def _settings(run: Run) -> dict[str, str]:
    config, budget = run.config, run.config["budget"]
    hyper = ", ".join(f"{name} = {value}" for name, value in config["hyper"].items())
    model_args = ", ".join(f"{name} = {value}" for name, value in config["model_args"].items())
    model = NETWORKS.get(config["model"], config["model"])
    data = DATA.get(config["data"], config["data"])
    if config["n_train"] is not None:
        data += f", the first {thousands(config['n_train'])} examples"
    if config["n_valid"]:
        data += f", {thousands(config['n_valid'])} held out"
    return {
        "Method": f"{config['method']}" + (f" ({hyper})" if hyper else ""),
        "Network": f"{model} ({model_args})" if model_args else model,
        "Data": data,
        "Training": f"{budget['epochs']} epochs, batches of {budget['batch']}, Adam {budget['lr']:g} "
        f"({budget['schedule']}), seed {budget['seed']}",
    }


def _figures(run: Run) -> dict[str, str]:
    if run.diverged:
        return {}
    result = run.result
    left = f"{thousands(result['nonzero']) if result['nonzero'] else 'none'} of {thousands(result['weights'])}"
    if 0 < result["nonzero"] < result["weights"]:
        left += f", {times(result['ratio'])} fewer"
    figures = {
        "Evaluated on": f"{thousands(result['examples'])} {result['evaluated_on']} examples, after the last epoch",
        "Error": f"{result['error']:.2f} % ({thousands(result['wrong'])} wrong)",
        "Log likelihood": f"{-result['nll']:.4f} nats per example",
        "Calibration error": f"{100 * result['ece']:.2f} %",
        "Remaining weights": left,
    }
    if result["units"]:
        figures["Remaining units"] = "-".join(map(str, result["units"]))
    return figures


def _origin(run: Run) -> dict[str, str]:
    if not run.sessions:
        return {"Made on": "an unknown machine: environment.json is missing"}
    last = run.sessions[-1]
    seconds = sum(session.get("seconds") or 0 for session in run.sessions)
    versions = last["versions"]
    threads = f"{last['threads']} thread" + ("s" if last["threads"] > 1 else "")
    return {
        "Made on": f"{last['machine']['processor']}, {threads}, torch {versions.get('torch', '?')}, "
        f"vbdrop {versions.get('vbdrop', '?')}",
        "Time": f"{seconds / 60:.1f} minutes" + (f", started {last['started'][:10]}" if last.get("started") else ""),
    }

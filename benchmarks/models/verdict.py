"""Decides whether an entry is correct, and whether it shrinks as it should."""

from typing import Any

OWNED = 0.8
"""The least share of the weights of linear layers and convolutions that groups own."""

GONE = 0.8
"""The least share of what dead groups own that is gone."""

EQUAL = 1e-4
"""The largest difference from the given model, relative to its largest output."""

Row = dict[str, Any]


def differences(row: Row) -> list[float]:
    """How far the small model, the loaded one and the rounded one are from the given model, if they were compared."""
    found = [row.get(key) for key in ("difference", "loaded_difference", "rounded_difference")]
    return [value for value in found if value is not None]


def is_wrong(row: Row) -> bool:
    """Whether anything gave different outputs from the given model."""
    return any(not value <= EQUAL for value in differences(row))


def shortcomings(row: Row) -> list[str]:
    """Which requirements an entry misses: converts, trains, is equal, owns enough, loses enough; empty if none."""
    needed = {name: text for name, text in row.get("errors", {}).items() if name not in ("load", "onnx", "latency")}
    if needed:
        return [f"{name}: {text}" for name, text in needed.items()]
    found = []
    if not row["finite"]:
        found.append("its gradients are not finite")
    if is_wrong(row):
        found.append(f"WRONG: its outputs differ by {max(differences(row)):.0e}")
    if row["owned"] < OWNED:
        found.append(f"groups own {100 * row['owned']:.0f} % of the weights")
    if row.get("gone", 0.0) < GONE:
        found.append(f"{100 * row.get('gone', 0.0):.0f} % of what dead groups own is gone")
    return found


def line(row: Row) -> str:
    """A row as text."""
    lacking = shortcomings(row)
    if "parameters_after" not in row:
        return f"{row['entry']:<46}{'; '.join(lacking)[:150]}"
    figures = [row["owned"], row.get("gone", 0.0), row["parameters_after"] / row["parameters"]]
    figures += [row.get(key, 0.0) for key in ("latency", "rounded_latency")]
    text = "".join(f"{100 * figure:7.0f} %" for figure in figures)
    errors = "".join(f"; {name}: {error[:120]}" for name, error in row.get("errors", {}).items())
    return (
        f"{row['entry']:<46}{text}{row['difference']:10.0e}  {'; '.join(lacking) or 'ok'}{errors} ({row['seconds']} s)"
    )

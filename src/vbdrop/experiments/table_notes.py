"""The notes below a table: how its numbers were made, its protocol, and its marks."""

from vbdrop.data import DATASETS
from vbdrop.data.splits import BLOCK
from vbdrop.experiments.curves import CLOSE
from vbdrop.experiments.paired import LEAST
from vbdrop.experiments.protocol import Column, Protocol
from vbdrop.experiments.tables import Table
from vbdrop.methods import Plain

DEFAULT = "*"
OLDER = "†"
EDGE = "‡"

SCHEDULES = {
    "constant": "constant",
    "linear": "falling linearly to 0",
    "late-linear": "constant for half of the run, then falling linearly to 0",
}
"""The name of a schedule of learning rates -> what it does."""

ADVERSARIAL = {"sadd", "vadd"}
"""The two rows for which the paper has one."""

RULES = {
    True: "Every setting is tried with one seed, and the better half, except for those clearly worse than the best, "
    "with a second one. The means over both decide; of equally good settings, the simplest wins.",
    False: "Bisection with one seed finds the strongest setting that is good enough; it and its neighbour are tried "
    "with a second seed, and the means over both decide.",
}
"""Whether a table is about errors -> how a setting is chosen: see :mod:`vbdrop.experiments.search`."""


def columns_of(table: Table) -> list[Column]:
    """Return the columns that a table shows."""
    return list({cell.column.key: cell.column for cell in table.cells}.values())


def epochs_differ(table: Table) -> bool:
    """Return whether columns that stand side by side have different epochs.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments import Book, protocol_of, table
        >>> [epochs_differ(table(Book(protocol_of(number), Path("no/such/folder")))) for number in (1, 2, 4)]
        [False, True, False]
    """
    side_by_side = table.protocol.kind == "error"
    return side_by_side and len({column.budget.epochs for column in columns_of(table)}) > 1


def number_notes(table: Table) -> list[str]:
    """Say what the numbers are, and how a setting was chosen."""
    protocol, said = table.protocol, []
    if protocol.quick:
        said.append("Quick: a few epochs on 2,000 of the embedded digits. The numbers only show that everything runs.")
    if protocol.on_validation:
        said.append(
            "Error on the validation split after the last epoch, the mean ± standard deviation over n seeds; the test "
            "data play no part. To base: the difference of the mean errors in points (with the 95 % interval of the "
            f"paired t-test if there are at least {LEAST} seeds), and that of the mean ratios in percent. Error at one "
            "size: the difference of the errors when thresholds cut all networks of both rows to the size of the "
            f"smallest, if none is more than {100 * (CLOSE - 1):.0f} % larger."
        )
    else:
        said.append(
            "Ours: error on the test data after the last epoch, the mean ± standard deviation over n seeds, trained on "
            "all training data."
        )
    if any(cell.choice for cell in table.cells):
        rule = RULES[protocol.kind == "error"]
        if any(column.finalists_in_full for column in columns_of(table)):
            rule = "Of equally good settings, the simplest wins."
        said.append(f"The setting is what the validation split chose. {rule}")
    if protocol.kind == "error" and any(cell.runner_up for cell in table.cells):
        said.append(
            "Runner-up minus chosen: if it is negative, the two are too close to tell apart, and the simpler one, or "
            "the first of two equally simple ones, was taken."
        )
    if protocol.kind == "neurons":
        said.append(
            "Fewer weights: those between the units that are left, all of them counted. The paper prints its units; "
            "its ratio is computed from them in the same way."
        )
    return said


def protocol_notes(table: Table) -> list[str]:
    """Say what the table asks for; cells with older runs were made otherwise."""
    protocol, shown = table.protocol, columns_of(table)
    current = f" (cells without {OLDER})" if any(cell.older for cell in table.cells) else ""
    chosen_on = [protocol.column(column.select_on) for column in shown if column.select_on is not None]
    columns = list({column.key: column for column in (*shown, *chosen_on) if column.select_on is None}.values())
    said = [f"{column.title}{current}: {_budget(column)}. {_purpose(column, protocol)}" for column in columns]
    followers: dict[tuple[str, int], list[str]] = {}
    for column in shown:
        if column.select_on is not None:
            followers.setdefault((column.select_on, column.budget.epochs), []).append(column.title)
    for (key, epochs), titles in followers.items():
        other = protocol.column(key)
        same = "as" if epochs == other.budget.epochs else f"{epochs} epochs, otherwise as"
        chosen = "chosen there"
        if other.finalists_in_full and epochs != other.budget.epochs:
            chosen = f"that its trials of {_trial_epochs(other)} epochs choose, with two seeds for the better half"
        said.append(f"{', '.join(titles)}{current}: {same} {other.title}, with the settings {chosen}.")
    if epochs_differ(table):
        said.append("Columns with different epochs must not be compared.")
    for every in dict.fromkeys(column.shrink_every for column in shown if column.shrink_every is not None):
        said.append(
            f"Sparse VD and VBD lose their dead units every {every} epochs while they train (--shrink-every), which "
            "makes them cheaper to train; what is left is counted against the whole network."
        )
    for cell in {cell.row.key: cell for cell in table.cells if cell.row.sized_as is not None}.values():
        said.append(
            f"{cell.row.title} has the setting whose network on the validation split is the closest in size to the one "
            f"that {protocol.row(cell.row.sized_as or '').title} has chosen there, whatever its error."
        )
    if protocol.remark and not protocol.quick:
        said.append(protocol.remark)
    pooled = [cell for cell in table.cells if cell.column.key in cell.row.pooled and cell.ours is not None]
    for cell in pooled:
        title = protocol.row(cell.row.pooled[cell.column.key]).title
        said.append(f"{cell.row.title} is {title} on {cell.column.title}: one objective, and the same runs.")
    if {cell.row.key for cell in table.cells if cell.paper is not None} >= ADVERSARIAL:
        said.append("The paper does not say which adversarial dropout it ran; its number stands beside both.")
    return said


def _budget(column: Column) -> str:
    budget = column.budget
    return (
        f"{DATASETS[column.data].title}, {budget.epochs} epochs, batches of {budget.batch}, Adam {budget.lr:g} "
        f"({SCHEDULES[budget.schedule]})"
    )


def _purpose(column: Column, protocol: Protocol) -> str:
    """What the validation split is for."""
    held_out = f"the {column.n_valid:,} validation examples"
    held_out += f" ({BLOCK} neighbours at a time)" if column.split == "block" else ""
    if protocol.on_validation:
        return f"Trained without {held_out}."
    tried = f"at most {column.trials} settings per method"
    if column.screened_on is not None:
        tried += f", of which the better half on {DATASETS[column.screened_on.data].title} (one seed) are tried here"
    said = f"Settings are chosen in trials of {_trial_epochs(column)} epochs, trained without {held_out}, {tried}."
    if column.margin:
        said += (
            f" The smallest network wins among those whose error is at most {column.margin:g} points above that of "
            "the plain network (or, for a low error, not above it)."
        )
    if column.finalists_in_full:
        said += (
            f" Such short trials prefer less noise, so the better half is tried again with {column.budget.epochs} "
            "epochs and one seed, and these runs alone decide."
        )
    return said


def _trial_epochs(column: Column) -> int:
    return column.budget_of(Plain(), seed=0, trial=True).epochs


def mark_notes(table: Table) -> list[str]:
    """Explain the marks of the table, and name the machines."""
    said = []
    older = any(cell.older for cell in table.cells)
    if any(cell.edges for cell in table.cells):
        said.append(f"{EDGE} The chosen value is an end of what was tried: a better one may lie beyond it.")
    if older:
        epochs = any(cell.other_epochs is not None for cell in table.cells)
        others = ", and with the epochs given instead of the column's" if epochs else ""
        said.append(
            f"{OLDER} Older runs, with other arithmetic, some with other settings{others}; not comparable with cells "
            f"without {OLDER}."
        )
    if any(cell.is_by_default for cell in table.cells):
        early = "the method's defaults"
        if any(column.finalists_in_full for column in columns_of(table)):
            early += ", or the best of its short trials"
        said.append(f"{DEFAULT} With settings that may change, {early}: the trials have not all been run.")
    if table.made_on:
        computed = f"Without {OLDER}: PyTorch formulas. {OLDER}: compiled kernels." if older else "PyTorch formulas."
        said.append(f"Made on {'; on '.join(table.made_on)}. {computed}")
    return said

"""What a run shows, with and without a terminal."""

import io
import re

from rich.console import Console

from vbdrop.cli.run_display import reporting
from vbdrop.train import Epoch, Evaluation, Sparsity


def epoch(number, kept=20):
    return Epoch(number, 0.5, 1.0, 1.0, None, Evaluation(1000, 17, 0.1, 0.0), Sparsity(1000, {"fc": kept}))


def run(console, epochs=40, evaluated=1):
    with reporting("VBD on digits", console) as report:
        for step in range(1, 5 * epochs + 1):
            ends = step % 5 == 0 and step // 5
            report(
                step, 5 * epochs, (epoch(ends) if ends % evaluated == 0 else Epoch(ends, 0.5, 1, 1)) if ends else None
            )


def test_without_a_terminal_there_are_ten_lines_and_no_escape_codes():
    console = Console(file=io.StringIO(), force_terminal=False, width=120)
    run(console, evaluated=3)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "VBD on digits"
    assert len(lines) == 11
    assert re.fullmatch(r"  epoch      4/40  loss  0\.5000  error 1\.70 %  weights  2\.0 % \(50x\)  0 s left", lines[1])
    assert lines[-1].startswith("  epoch     40/40")
    assert not lines[-1].endswith("left")
    assert "\x1b" not in console.file.getvalue()


def test_in_a_terminal_there_is_a_bar_with_error_sparsity_and_time():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    run(console)
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue()).strip().splitlines()[-1]
    assert "VBD on digits" in last
    assert "100 %" in last
    assert "error 1.70 %  weights  2.0 % (50x)" in last


def test_what_is_said_of_an_epoch_can_be_chosen_and_no_line_is_cut():
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    with reporting(
        "VBD", console, lambda epoch: "" if epoch is None else f"a long word on epoch {epoch.epoch}"
    ) as report:
        report(1, 1, epoch(1))
    assert "a long word on epoch 1  0 s" in console.file.getvalue()


def test_a_narrow_terminal_has_room_for_the_figures():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    run(console)
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue()).strip().splitlines()[-1]
    assert "error 1.70 %  weights  2.0 % (50x)" in last

"""Names that tell runs apart, and commands that do what they say."""

import json
import shlex

import pytest

from vbdrop.cli.app import main
from vbdrop.report.reading import read_run
from vbdrop.report.wording import command, labels, remedy, short, size, times, title


def test_a_run_is_named_by_what_tells_it_from_the_others(run):
    vbd, plain = run("vbd"), run("plain")
    other = run("vbd", config={"budget": {**vbd.config["budget"], "seed": 3}})
    assert labels([vbd]) == ["vbd-weights"]
    assert labels([vbd, plain]) == ["vbd-weights", "plain"]
    assert labels([vbd, other, plain]) == ["vbd-weights · seed 0", "vbd-weights · seed 3", "plain"]
    assert labels([vbd, vbd]) == ["vbd-weights (1)", "vbd-weights (2)"]
    assert title(vbd) == "vbd-weights, MLP on digits"


def test_the_command_makes_this_run_and_no_other(made, tmp_path, capsys):
    """The same settings give the same name, so the command finds the run that has ended."""
    records = tmp_path / "records"
    records.symlink_to(made["vbd"].parent)
    for name in ("vbd", "plain"):
        words = shlex.split(command(read_run(made[name])))
        assert words[0] == "vbdrop"
        with pytest.raises(SystemExit) as caught:
            main([*words[1:], "--records", str(records), "--json"])
        assert caught.value.code == 0
        said = capsys.readouterr()
        assert "has already ended" in said.err
        assert json.loads(said.out)["run"] == read_run(made[name]).id


def test_settings_without_an_option_are_read_from_the_file(run):
    budget = run("vbd").config["budget"]
    assert command(run("vbd", config={"budget": {**budget, "evaluate_every": 5}})).endswith("--config config.json")
    shrinking = run("vbd", config={"budget": {**budget, "shrink_every": 2}})
    assert "--shrink-every 2" in command(shrinking)
    assert "--valid 50" in command(run("vbd", config={"n_valid": 50}))


def test_what_is_missing_is_made_from_the_weights_or_again(run):
    kept, lost = run("vbd"), run("vbd", without=["weights.safetensors"])
    assert remedy(kept, "details") == (f"vbdrop compress {kept.folder} --measure",)
    assert remedy(lost, "details") == (f"vbdrop train --config {lost.folder}/config.json --records runs",)
    assert remedy(lost, "measured")[1] == f"vbdrop compress runs/{lost.folder.name} --measure"


def test_numbers():
    assert [size(n) for n in (0, 999, 1000, 999_499, 999_500)] == ["0 B", "999 B", "1.0 kB", "999.5 kB", "1.00 MB"]
    assert times(1234.5) == "1,234.5×"
    assert len(short("x" * 100)) == 22

"""Names that tell runs apart, and commands that do what they say."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from vbdrop.cli.app import main
from vbdrop.experiments import Record
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


@pytest.mark.parametrize("changes", [{}, {"arithmetic": "plain"}, {"n_valid": 50, "split": "block"}])
def test_the_command_makes_this_run_and_no_other(copied, tmp_path, capsys, monkeypatch, changes):
    """The same settings give the same name, so the command finds the run that has ended."""
    folder = copied("vbd", config=changes)
    config = Record(folder).config
    records = tmp_path / "records"
    shutil.copytree(folder, records / config.name)
    result = json.loads((folder / "result.json").read_text()) | {"run": config.id}
    (records / config.name / "result.json").write_text(json.dumps(result))
    monkeypatch.chdir(folder)
    words = shlex.split(command(read_run(folder)))
    assert words[0] == "vbdrop"
    with pytest.raises(SystemExit) as caught:
        main([*words[1:], "--records", str(records), "--json"])
    assert caught.value.code == 0
    said = capsys.readouterr()
    assert "has already ended" in said.err
    assert json.loads(said.out)["run"] == config.id


def test_a_setting_that_the_record_is_older_than_keeps_its_old_value(copied, monkeypatch):
    hyper = {key: value for key, value in read_run(copied("vbd")).config["hyper"].items() if key != "refine"}
    folder = copied("vbd", config={"hyper": hyper})
    monkeypatch.chdir(folder)
    assert command(read_run(folder)).split()[2] == "--config"
    assert Record(folder).config.hyper["refine"] == 0.0


def test_the_command_has_the_threads_of_the_record(run):
    vbd = run("vbd")
    assert "--threads" not in command(vbd)
    assert command(replace(vbd, sessions=[{**vbd.sessions[0], "threads": 2}])).endswith(" --threads 2")
    assert "--threads" not in command(replace(vbd, sessions=[]))


def test_what_is_missing_is_made_from_the_weights_or_again(run):
    kept, lost = run("vbd"), run("vbd", without=["weights.safetensors"])
    assert remedy(kept, "details") == (f"vbdrop compress {kept.folder} --measure",)
    assert remedy(lost, "details") == (f"vbdrop train --config {lost.folder}/config.json --records runs",)
    assert remedy(lost, "measured")[1] == f"vbdrop compress runs/{lost.folder.name} --measure"


def test_a_run_in_the_folder_of_runs_is_made_again_elsewhere(copied, tmp_path, monkeypatch):
    """In that folder it has already ended, so the command would train nothing and keep no weights."""
    folder = copied("vbd", without=["weights.safetensors"])
    (tmp_path / "runs").mkdir()
    folder = folder.rename(tmp_path / "runs" / folder.name)
    monkeypatch.chdir(tmp_path)
    again, measured = remedy(read_run(Path("runs") / folder.name), "measured")
    assert again.endswith(f"runs/{folder.name}/config.json --records runs/again")
    assert measured == f"vbdrop compress runs/again/{folder.name} --measure"
    monkeypatch.chdir(folder)
    assert remedy(read_run(Path()), "measured")[1] == f"vbdrop compress runs/{folder.name} --measure"


def test_numbers():
    assert [size(n) for n in (0, 999, 1000, 999_499, 999_500)] == ["0 B", "999 B", "1.0 kB", "999.5 kB", "1.00 MB"]
    assert times(1234.5) == "1,234.5×"
    assert len(short("x" * 100)) == 22

"""Every verb on a terminal without Unicode, and into a pipe that nobody reads any more."""

import io
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from vbdrop.cli.app import main
from vbdrop.cli.streams import HANDLER, prepare
from vbdrop.cli.verbs import VERBS

COMMANDS = {  # each in a small way; RUN is a run that has ended
    "train": "train vbd-weights TINY",
    "compress": "compress RUN",
    "report": "report RUN --output HERE/page.html",
    "table": "table 4 --records HERE/none",
    "queue": "queue --cost --quick --table 3 --records HERE/none",
    "ablation": "ablation --records HERE/none",
    "rerun": "rerun RUN --records HERE/again",
    "methods": "methods",
    "data": "data",
    "bench": "bench plain vbd-gates --steps 1 --batch 10",
    "info": "info",
}


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    """The folder of a run that has ended, and the options that made it."""
    records = tmp_path_factory.mktemp("runs")
    tiny = [
        "--model",
        "mlp",
        "--model-arg",
        "units=12",
        "--examples",
        "300",
        "--epochs",
        "1",
        "--records",
        str(records),
    ]
    with pytest.raises(SystemExit) as ended:
        main(["train", "vbd-weights", *tiny])
    assert ended.value.code == 0
    (folder,) = records.iterdir()
    return str(folder), tiny


@pytest.fixture
def run(a_run, tmp_path, monkeypatch, capsys):
    """Runs a command with another standard output, and gives its exit code and what it said on standard error."""

    def call(command, stdout):
        words = []
        for word in command.split():
            words += a_run[1] if word == "TINY" else [word.replace("RUN", a_run[0]).replace("HERE", str(tmp_path))]
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            patch.setattr(sys, "stderr", sys.stderr)  # Typer wraps both when it meets a broken pipe
            with pytest.raises(SystemExit) as ended:
                main(words)
        return ended.value.code, capsys.readouterr().err

    return call


def test_no_verb_is_forgotten():
    apart = {"demo", "shrink"}  # the demo takes minutes, and shrink needs a module of its user's
    assert {*COMMANDS, *apart} == set(VERBS)


@pytest.mark.parametrize("command", [*COMMANDS.values(), *(f"{verb} --help" for verb in VERBS)])
def test_a_terminal_that_has_only_ascii_gets_ascii(run, command):
    written = io.BytesIO()
    code, said = run(command, io.TextIOWrapper(written, encoding="ascii", errors="strict", write_through=True))
    assert code == 0, said
    assert "codec" not in said
    assert written.getvalue().decode("ascii").strip()


@pytest.mark.parametrize("command", [*COMMANDS.values(), *(f"{verb} --help" for verb in VERBS)])
def test_a_pipe_that_nobody_reads_ends_the_command_without_a_word(run, command):
    reading, writing = os.pipe()
    os.close(reading)
    with suppress(BrokenPipeError), os.fdopen(writing, "w") as stdout:
        code, said = run(command, stdout)
    assert code == 1
    assert "Broken pipe" not in said
    assert "Traceback" not in said


def test_a_process_that_is_read_by_head_is_silent_until_its_very_end(tmp_path):
    command = f"{sys.executable} -m vbdrop table 4 --records {tmp_path} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Table 4")
    assert done.stderr == ""


def test_standard_output_may_be_closed_or_full(tmp_path):
    for output, said in ((">&-", ""), (">/dev/full", "vbdrop: [Errno 28] No space left on device\n")):
        command = f"{sys.executable} -m vbdrop --help {output}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert (done.stderr, done.returncode) == (said, 1 if said else 0)


def test_letters_have_their_plain_ones():
    assert "1.8 ± 0.1 – 3×, α…".encode("ascii", HANDLER) == b"1.8 +- 0.1 - 3x, alpha..."


@pytest.mark.parametrize(("encoding", "said"), [("ascii", b"1 +- 2 -"), ("utf-8", "1 ± 2 –".encode())])
def test_the_posix_locale_gets_plain_letters_and_utf_8_keeps_its_own(monkeypatch, encoding, said):
    """In the POSIX locale, Python opens standard output in a way that refuses letters but lets odd file names pass."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="surrogateescape")
    monkeypatch.setattr(sys, "stdout", stream)
    prepare()
    stream.write("1 ± 2 –")
    stream.flush()
    assert stream.buffer.getvalue() == said

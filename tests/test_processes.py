import signal

from tests.processes import run, run_all

PROGRAM = """
import os, sys
sys.stdout.write(f"{sys.argv[1]} {os.environ.get('WORD')} {os.getpid()}")
sys.exit(sys.argv[2] if len(sys.argv) > 2 else 0)
"""


def test_programs_run_in_processes_of_their_own(monkeypatch):
    monkeypatch.setenv("WORD", "inherited")
    first, second = run_all([(PROGRAM, ["a"]), (PROGRAM, ["b", "it failed"])], 60)
    assert (first.code, first.error, first.out.split()[:2]) == (0, "", ["a", "inherited"])
    assert (second.code, second.error, second.out.split()[:2]) == (1, "it failed\n", ["b", "inherited"])
    assert first.out.split()[2] != second.out.split()[2]
    assert run(PROGRAM, "c", WORD=None).out.split()[1] == "None"


def test_an_error_is_told_and_a_program_that_hangs_is_killed():
    wrong = run("1 / 0")
    assert wrong.code == 1
    assert "ZeroDivisionError" in wrong.error
    assert run("import time; time.sleep(60)", seconds=0.5).code == -signal.SIGKILL


def test_what_a_program_leaves_behind_is_not_taken_apart(tmp_path):
    program = "import sys, tempfile; left = tempfile.TemporaryDirectory(dir=sys.argv[1])"
    assert run(program, str(tmp_path)).code == 0
    assert len(list(tmp_path.iterdir())) == 1

"""The commands that the pages show: each is run, in a small way, or is run by a test of its own that is named here."""

import argparse
import glob
import re
import runpy
import shlex
import sys

import pytest
from tests.pages import PAGES, PROJECT, commands, name_of

from vbdrop.cli.app import main
from vbdrop.cli.verbs import VERBS, group

SMALL = {  # what makes a command cheap; the last of two equal options counts
    "vbdrop train": ["--data", "digits", "--epochs", "1", "--examples", "300"],
    "vbdrop bench": ["--steps", "1", "--batch", "10"],
    "vbdrop table 4 --cost": ["--quick"],
    "vbdrop ablation --cost": ["--quick"],
    "vbdrop queue --cost": ["--quick"],
}

ELSEWHERE = {  # the beginning of a command -> the test that runs it
    "vbdrop demo": "tests/cli/test_demo.py",
    "vbdrop report": "tests/cli/test_report.py",
    "vbdrop rerun": "tests/cli/test_rerun.py",
    "vbdrop shrink": "tests/cli/test_shrink.py",
    "vbdrop table 4 --run": "tests/cli/test_table.py",
    "vbdrop ablation --run": "tests/cli/test_ablation.py",
    "vbdrop queue --workers": "tests/cli/test_queue.py",
    "cc ": "tests/examples/test_digit.py",
    "./digit ": "tests/examples/test_digit.py",
    "torchrun ": "tests/examples/test_distributed_digits.py",
    "ray ": "tests/integrations/test_ray.py",
    "vbdrop table 1 --run --on ray": "tests/integrations/test_ray.py",
    "vbdrop queue --on ray": "tests/integrations/test_ray.py",
    "make docs": "tests/test_site.py",
}


def expanded(word: str) -> str:
    """The first file that a pattern stands for."""
    return next(iter(sorted(glob.glob(word))), word)  # noqa: PTH207 -- patterns as a shell knows them


class Read(BaseException):
    """A command line was right."""


def read_only(parse_args):
    def parse_args_and_stop(parser, *args, **kwargs):
        parse_args(parser, *args, **kwargs)
        raise Read

    return parse_args_and_stop


def parse(words: list[str]) -> None:
    """Read a command line of `vbdrop` without running it."""
    command, context = group(), group().make_context("vbdrop", [], resilient_parsing=True)
    name, command, rest = command.resolve_command(context, words)
    command.make_context(name, [expanded(word) for word in rest], parent=context)


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    test = next((test for start, test in ELSEWHERE.items() if f"{command} ".startswith(start)), None)
    small = next((small for start, small in SMALL.items() if f"{command} ".startswith(f"{start} ")), [])
    if test is not None:
        assert (PROJECT / test).is_file()
        if words[0] == "vbdrop":
            parse(words[1:])
    elif words[0] == "vbdrop":
        parse(words[1:])
        with pytest.raises(SystemExit) as ended:
            main([expanded(word) for word in words[1:]] + small)
        assert ended.value.code == 0
    elif words[:2] == ["python", "-m"]:  # a measurement takes minutes: read its command line, and run none
        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", read_only(argparse.ArgumentParser.parse_args))
        monkeypatch.setattr(sys, "argv", words[2:])
        for module in (words[2], f"{words[2]}.__main__"):
            monkeypatch.delitem(sys.modules, module, raising=False)  # another test may have imported it
        with pytest.raises(Read):
            runpy.run_module(words[2], run_name="__main__")
    elif words[0] == "python":
        example = PROJECT / words[1]
        folder = f"tests/{example.relative_to(PROJECT).parts[0]}"
        assert example.is_file()
        assert any((PROJECT / folder / f"test_{name}.py").is_file() for name in (example.stem, example.parent.name))
    elif words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), flags=re.MULTILINE)
        assert words[1] in targets
    elif words[:2] == ["pip", "install"]:
        offered = re.search(
            r"\[project.optional-dependencies\]\n(.*?)\n\[", (PROJECT / "pyproject.toml").read_text(), re.S
        )
        for extra in re.findall(r"\[([\w,]+)\]", command)[0].split(","):
            assert re.search(rf"^{extra} = ", offered[1], flags=re.MULTILINE), f"there is no extra {extra!r}"
    else:
        pytest.fail(f"no test runs {command!r}; say in this file how it is run")


WITH_COMMANDS = [page for page in PAGES if commands(page.read_text())]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_run(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for command in commands(page.read_text()):
        run(command, monkeypatch)


@pytest.mark.parametrize(
    "command", ["vbdrop trian", "vbdrop train --epochs", "make tea", "pip install 'x[tea]'", "tea"]
)
def test_a_wrong_command_is_seen(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BaseException):  # noqa: B017, PT011 -- usage errors, failed assertions and pytest's own
        run(command, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_the_text_of_a_page_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), flags=re.MULTILINE))
    quoted = re.findall(r"`((?:vbdrop|make|python) [^`\n]+)`", page.read_text())
    unknown = []
    for command in quoted:
        program, word, *_ = command.split()
        known = {"vbdrop": {*VERBS, "VERB"}, "make": targets}.get(program)
        if known is not None and word not in known and not word.startswith("-"):
            unknown.append(command)
        if program == "python" and word.endswith(".py") and not (PROJECT / word).is_file():
            unknown.append(command)
    assert unknown == []

"""What the pages show is true: their Python runs, and the commands that they name exist."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def blocks(markdown: str, *languages: str) -> Iterator[tuple[int, list[str]]]:
    """The fenced blocks in some languages: the number of the first line, counted from 0, and the lines."""
    start, indent, lines = None, "", []
    for number, line in enumerate(markdown.splitlines()):
        fence = re.match(r"( *)```\s*(\w*)", line)
        if fence and start is None:
            start, indent, lines = number + 1, fence[1], []
            wanted = fence[2] in languages
        elif fence:
            if wanted:
                yield start, lines
            start = None
        elif start is not None:
            lines.append(line.removeprefix(indent))


def script(markdown: str) -> str:
    """The Python of a page as one script, each line at its own number: a traceback points into the page."""
    lines = [""] * len(markdown.splitlines())
    for start, block in blocks(markdown, "python"):
        lines[start : start + len(block)] = block
    return "\n".join(lines)


def test_a_script_is_the_python_of_a_page_line_by_line():
    page = "Text\n```python\na = 1\n```\n```console\n$ make\n```\n  ```python\n  if a:\n      b = a\n  ```\n"
    assert script(page).split("\n") == ["", "", "a = 1", "", "", "", "", "", "if a:", "    b = a", ""]


def test_the_readme_shows_python():
    assert script((PROJECT / "README.md").read_text()).strip()


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if script(p.read_text()).strip()],
    ids=lambda p: p.relative_to(PROJECT).as_posix(),
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{page.stem}.py"
    path.write_text(script(page.read_text()))
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_the_commands_of_a_page_exist(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), flags=re.MULTILINE))
    commands = re.findall(r"`([^`\n]+)`", text)
    for _, lines in blocks(text, "console", "bash", "sh"):
        commands += [line.removeprefix("$ ") for line in lines]
    unknown = []
    for command in commands:
        for word in re.findall(r"^make ([a-z]+)", command):
            unknown += [] if word in targets else [f"make {word}"]
        for word in re.findall(r"^python ([\w/]+\.py)", command):
            unknown += [] if (PROJECT / word).is_file() else [f"python {word}"]
    assert unknown == []

"""What the pages show is true: their Python runs, and the commands that they name exist."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import vbdrop
import vbdrop.models

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


def run(page: Path, folder: Path) -> dict[str, object]:
    """Run the Python of a page; returns the names that it leaves."""
    path = folder / f"{page.stem}.py"
    path.write_text(script(page.read_text()))
    return runpy.run_path(str(path), run_name="__main__")


def test_the_loop_of_the_readme_ends_sparse_and_as_accurate_as_the_plain_network(tmp_path):
    page = run(PROJECT / "README.md", tmp_path)
    rates = vbdrop.rates(page["model"]).values()
    assert sum(rate.dead for rate in rates) > 0.8 * sum(rate.count for rate in rates)

    data = page["data"]
    plain = vbdrop.models.build("lenet-300-100")
    optimizer = torch.optim.Adam(plain.parameters(), lr=2e-3)
    for _ in range(10):
        for batch in torch.randperm(8_000).split(100):
            optimizer.zero_grad()
            F.cross_entropy(plain(data.train_images[batch]), data.train_labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        plain_accuracy = (plain(data.test_images).argmax(1) == data.test_labels).float().mean().item()
    assert page["accuracy"] > plain_accuracy - 0.01


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES[1:] if script(p.read_text()).strip()],
    ids=lambda p: p.relative_to(PROJECT).as_posix(),
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page, tmp_path)


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

"""What is in the pages: the README, the guide for contributors, and the documentation."""

import re
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """The path of a page in the project."""
    return page.relative_to(PROJECT).as_posix()


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


def commands(markdown: str) -> list[str]:
    """The commands in the console blocks of a page, without prompts, comments and what they print."""
    lines = [line for _, block in blocks(markdown, "console") for line in block]
    return [re.sub(r"\s+#.*", "", line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]

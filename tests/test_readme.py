"""What the pages show is true: their Python runs, and in the README it gives what is said of it."""

import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.pages import PAGES, PROJECT, name_of, script
from tests.trained import above

import vbdrop
import vbdrop.models


def test_a_script_is_the_python_of_a_page_line_by_line():
    page = "Text\n```python\na = 1\n```\n```console\n$ make\n```\n  ```python\n  if a:\n      b = a\n  ```\n"
    assert script(page).split("\n") == ["", "", "a = 1", "", "", "", "", "", "if a:", "    b = a", ""]


def run(page: Path, folder: Path) -> dict[str, object]:
    """Run the Python of a page; returns the names that it leaves."""
    path = folder / f"{page.stem}.py"
    path.write_text(script(page.read_text()))
    return runpy.run_path(str(path), run_name="__main__")


@pytest.mark.trained
def test_the_loop_of_the_readme_ends_sparse_and_as_accurate_as_the_plain_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = run(PROJECT / "README.md", tmp_path)
    rates = vbdrop.rates(page["model"]).values()
    above(0.8, sum(rate.dead for rate in rates) / sum(rate.count for rate in rates), mean=0.956, sd=0.0012)

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
    above(-0.045, page["accuracy"] - plain_accuracy, mean=-0.001, sd=0.0085)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*does not have many workers")  # Lightning's
@pytest.mark.filterwarnings("ignore:The number of training batches")
@pytest.mark.trained
@pytest.mark.parametrize(
    "page",
    [p for p in PAGES[1:] if script(p.read_text()).strip()],
    ids=name_of,
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch, request):
    if '.c")' in script(page.read_text()):  # an export to C, which is compiled to check it
        request.getfixturevalue("compiler")
    for trainer in re.findall(r"^from vbdrop\.integrations\.(\w+) import", script(page.read_text()), re.MULTILINE):
        if find_spec(trainer) is None:
            pytest.skip(f"NOT TESTED: there is no {trainer} here; `make test-integrations` installs it")
    monkeypatch.chdir(tmp_path)
    run(page, tmp_path)

"""Real records, made once: a run with learned rates and all that a report can show, and a plain one."""

import json
import os
import shutil

import pytest
from tests.report.browser import Browser

from vbdrop.cli.small_network import Exports, measured, smaller
from vbdrop.experiments import execute, make_method, resolve
from vbdrop.experiments.inputs import facts
from vbdrop.report.drawing import style
from vbdrop.report.reading import read_run
from vbdrop.train import Budget


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The folders of two runs: vbd and plain. Not to be changed."""
    records = tmp_path_factory.mktemp("records")
    folders = {}
    for name, method, hyper in (("vbd", "vbd-weights", {"kl_weight": 20.0}), ("plain", "plain", {})):
        config = resolve(
            make_method(method, hyper),
            model="mlp",
            model_args={"units": 12},
            data="digits",
            checksum=facts("digits").checksum,
            n_train=300,
            budget=Budget(epochs=4),
        )
        record = execute(config, records, keep_weights=True)
        if name == "vbd":
            measured(record, smaller(record), Exports([], {"small, C": "there is no C compiler on the PATH"}))
        folders[name] = record.folder
    return folders


@pytest.fixture
def copied(made, tmp_path):
    """Copies a run, so that it can be changed: ``copied("vbd", without=["details.json"], result={"error": "x"})``."""

    def copy(name="vbd", *, without=(), **changes):
        folder = tmp_path / f"{made[name].name}-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(made[name], folder)
        for file in without:
            (folder / file).unlink()
        for stem, change in changes.items():
            path = folder / f"{stem}.json"
            content = json.loads(path.read_text())
            content.update(change)
            path.write_text(json.dumps(content))
        return folder

    return copy


@pytest.fixture
def run(copied):
    """Reads a run, changed as ``copied`` does."""
    return lambda *args, **changes: read_run(copied(*args, **changes))


@pytest.fixture(autouse=True)
def styled():
    with style():
        yield


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A real Chromium; where there is none, its tests are skipped, or fail if CI=true asks for all of them."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome")
    program = next((found for name in names if name and (found := shutil.which(name))), None)
    if program is None:
        reason = "NOT TESTED: there is no Chromium here (none of $CHROMIUM, chromium, google-chrome); install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with Browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened

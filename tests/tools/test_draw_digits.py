import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "tools/draw_digits.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("draw_digits", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_evenly_takes_as_many_of_each_class_from_the_whole_range(tool):
    labels = np.random.RandomState(0).randint(0, 10, 5000).astype(np.uint8)
    kept = tool.evenly(labels, 200)
    assert np.bincount(labels[kept]).tolist() == [200] * 10
    assert (np.diff(kept) > 0).all()
    assert abs((kept < 2500).sum() - 1000) < 50


def test_files_that_are_not_mnist_are_refused(tool, tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03 not MNIST")
    with pytest.raises(SystemExit, match="must be MNIST's"):
        tool.draw(tmp_path)

"""`vbdrop.shrink` with a data set of scikit-learn, as the page on one's own model has it."""

import pytest
import torch
from tests.integrations.extras import needs
from tests.pages import PROJECT, blocks

needs("sklearn")


def test_the_example_of_the_page_shrinks_arrays_from_scikit_learn():
    page = (PROJECT / "docs/own-model.md").read_text()
    (example,) = ["\n".join(lines) for _, lines in blocks(page, "py")]
    names = {}
    exec(example, names)
    result, inputs = names["result"], names["scaler"].transform(names["x_valid"])
    assert result.before == 30 * 64 + 64 * 2
    assert 0.9 * result.limit < result.size <= result.limit
    assert result.error < 10.0
    said = result.model(torch.as_tensor(inputs, dtype=torch.float32)).argmax(1)
    wrong = 100 * (said.numpy() != names["y_valid"]).mean()
    assert wrong == pytest.approx(result.error, abs=1e-4)

"""A data set of scikit-learn for `vbdrop.shrink` and for an estimator, as the page on one's own model has it."""

import pytest
import torch
from tests.integrations.extras import needs
from tests.pages import PROJECT, blocks
from tests.trained import above

needs("sklearn")


def run(words: str) -> dict:
    """Run the example of the page that contains these words."""
    page = (PROJECT / "docs/own-model.md").read_text()
    (example,) = [code for _, lines in blocks(page, "py") if words in (code := "\n".join(lines))]
    names = {}
    exec(example, names)
    return names


def test_the_example_of_the_page_shrinks_arrays_from_scikit_learn():
    names = run("vbdrop.shrink(")
    result, inputs = names["result"], names["scaler"].transform(names["x_valid"])
    assert result.before == 30 * 64 + 64 * 2
    assert 0.9 * result.limit < result.size <= result.limit
    assert result.error < 10.0
    said = result.model(torch.as_tensor(inputs, dtype=torch.float32)).argmax(1)
    wrong = 100 * (said.numpy() != names["y_valid"]).mean()
    assert wrong == pytest.approx(result.error, abs=1e-4)


@pytest.mark.trained
def test_the_estimator_of_the_page_is_accurate_in_every_fold(capsys):
    needs("skorch")
    torch.manual_seed(0)
    run("VBDClassifier(")
    scores = [float(score) for score in capsys.readouterr().out.strip(" []\n").split()]
    assert len(scores) == 5
    above(0.95, sum(scores) / 5, mean=0.976, sd=0.0025)

"""Formulas in plain letters."""

import re
import sys

import pytest

from vbdrop.cli.plain_math import plain_math
from vbdrop.methods import METHODS


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        (r"k = f_t\, n", "k = f_t n"),
        (r"|\partial L/\partial w|", "|dL/dw|"),
        (r"e^{-5(1-t/T)^2}", "e^(-5(1-t/T)^2)"),
        (r"\frac{l^2}{N}\frac{\lVert W\rVert^2}{1-p}", "l^2/N ||W||^2/(1-p)"),
        (r"s_f\,\Big(1 - \Big(1 - \frac{t - t_0}{t_1 - t_0}\Big)^3\Big)", "s_f (1 - (1 - (t - t_0)/(t_1 - t_0))^3)"),
        (r"E\theta/\sqrt{Var\,\theta}", "E theta/sqrt(Var theta)"),
        (r"B = (A \circ \xi)\theta", "B = (A * xi) theta"),
        (r"\lVert W_{n\cdot}\rVert_2", "||W_n.||_2"),
    ],
)
def test_a_formula_means_the_same(formula, said):
    assert plain_math(formula) == said


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_command_is_left_in_any_formula_of_the_methods(method):
    text = sys.modules[method.__module__].__doc__
    for formula in re.findall(r":math:`([^`]*)`|\.\. math:: (.*?)(?:\n\n|$)", text, flags=re.S):
        assert not re.search(r"[\\{}]", plain_math("".join(formula)))

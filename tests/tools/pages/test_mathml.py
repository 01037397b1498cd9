import markdown
from tools.pages.mathml import Formulas, fenced, mathml


def test_a_formula_in_the_text_becomes_mathml_and_code_stays_code():
    html = markdown.markdown(r"The $`\alpha^2`$, and `code` for $5.", extensions=[Formulas()])
    assert "<msup><mi>&#x003B1;</mi><mn>2</mn></msup>" in html
    assert "<code>code</code> for $5." in html


def test_a_fenced_formula_stands_alone():
    assert 'display="block"' in fenced(r"\frac12", "math", "formula", {}, None)


def test_distributed_as_is_no_accent():
    assert "∼" in mathml(r"w \sim N") or "&#x0223C;" in mathml(r"w \sim N")

"""Formulas for a terminal: the LaTeX of the docstrings as plain text."""

import re

_SYMBOLS = {"circ": " * ", "cdot": ".", "sim": " ~ ", "le": " <= ", "ge": " >= ", "leftarrow": " <- ", "qquad": " "}
"""Commands that are not written as a word; all others, such as Greek letters and functions, are."""

_GROUP = r"\s*(\{[^{}]*\}|\w)"


def plain_math(formula: str) -> str:
    r"""Write a formula in plain letters.

    Args:
        formula: LaTeX, as in the docstrings of the methods.

    Example:
        >>> plain_math(r"\tfrac{\alpha}{2}(1 + \cos(\pi t/T))")
        'alpha/2 (1 + cos(pi t/T))'
        >>> plain_math(r"\sum_{kd}\tfrac12\log(1 + \alpha_{kd}^{-1})")
        'sum_kd 1/2 log(1 + alpha_kd^-1)'
    """
    text = re.sub(r"\\[,;]|\s+", " ", formula)
    text = re.sub(r"\\(?:[bB]ig|textstyle)(?![A-Za-z])\s*", "", text)
    text = re.sub(r"\\(?:text|mathrm)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\lVert\s*(.*?)\s*\\rVert", r"||\1||", text)
    while (simpler := re.sub(rf"\\t?frac{_GROUP}{_GROUP}", _fraction, _scripts(text))) != text:
        text = simpler
    text = re.sub(r"\\sqrt\{([^{}]*)\}", r"\\sqrt(\1)", text)
    text = re.sub(r"\\partial\s*", "d", text)
    text = re.sub(r"\\([A-Za-z]+)(\s*)", _word, text)
    text = re.sub(r"(?<=\() | (?=[_^),;/])", "", text)
    return re.sub(r" {2,}", " ", text).strip()


def _scripts(text: str) -> str:
    """Write subscripts and superscripts without braces, in parentheses if they are more than a name or number."""
    text = re.sub(r"([_^])\{(-?\w+)\}", r"\1\2", text)
    return re.sub(r"([_^])\{([^{}]*)\}", lambda found: found[1] + _one(found[2]), text)


def _fraction(found: re.Match[str]) -> str:
    return f" {'/'.join(_one(part.strip('{}').strip()) for part in found.groups())} "


def _one(part: str) -> str:
    """In parentheses, unless it is one name, number or norm."""
    return part if re.fullmatch(r"-?\\?\w+([_^]\w+)*|\w*\\cdot ?\w*|\|\|[^|]*\|\|(\^\d)?", part) else f"({part})"


def _word(found: re.Match[str]) -> str:
    """The name of a command, apart from the letters around it."""
    if found[1] in _SYMBOLS:
        return _SYMBOLS[found[1]]
    before, after = found.string[: found.start()], found[2] + found.string[found.end() :]
    left = " " if re.search(r"[A-Za-z0-9)]$", before) else ""
    return left + found[1] + (" " if re.match(r"[A-Za-z0-9\\|\s]", after) else "")

from tools.pages.docstrings import as_markdown


def test_formulas_roles_and_examples_become_markdown():
    text = """A :math:`\\alpha`, ``b`` and :func:`vbdrop.kl`.

    .. math:: x
        + y

    Example:
        >>> 1
    """
    assert (
        as_markdown(text)
        == """A $`\\alpha`$, `b` and `vbdrop.kl`.

    ```math
    x
    + y
    ```

    Examples:
        >>> 1
    """
    )


def test_plain_text_stays():
    assert as_markdown("Nothing `here`. An Example: none.") == "Nothing `here`. An Example: none."

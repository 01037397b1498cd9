from tools.picture import three_figures


def test_the_picture_has_the_plain_units_the_ones_that_are_left_and_the_noise():
    names = ("How noisy the weights are: b", "The 12 units of hidden.0, c", "The 12 units of hidden.0, d", "Else, e")
    report = "<head><title>a</title></head>" + "".join(
        f"<figure><svg>{name[-1]}</svg>\n<figcaption>{name}</figcaption></figure>" for name in names
    )
    page = three_figures(report)
    assert "<title>a</title>" in page
    assert "figcaption" not in page
    found = [page.index(f"<svg>{letter}</svg>") for letter in "dcb"]
    assert found == sorted(found)
    assert "<svg>e</svg>" not in page

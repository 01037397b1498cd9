from pathlib import Path

from tools.pages.generated import filled, help_of


def test_a_mark_becomes_what_the_program_says():
    page = filled("a\n\n<!-- help: data get -->\n\nb\n")
    assert page.startswith("a\n\n```text\n$ vbdrop data get --help\nUsage: vbdrop data get")
    assert page.endswith("```\n\nb\n")
    assert "<!-- other -->" in filled("<!-- other -->")


def test_the_program_itself_lists_its_verbs():
    assert "compress" in help_of("")


def test_a_table_stands_below_the_title_of_the_page():
    page = filled("<!-- table: 3 -->")
    assert page.startswith("## Table 3: ")
    assert "Still to run" not in page


def test_every_kind_of_part_is_made_of_the_records_that_are_given():
    marks = ("status", "findings", "missing", "ablations", "frontier: 5 lenet-5")
    page = filled("\n\n".join(f"<!-- {mark} -->" for mark in marks), Path("no/such/folder"))
    assert "<!--" not in page
    assert "Nothing has been recorded yet." in page
    assert "## Ablations: " in page
    assert "`vbdrop table 5 --run --column lenet-5`" in page

from tools.pages.generated import filled, help_of


def test_a_mark_becomes_what_the_program_says():
    page = filled("a\n\n<!-- help: data get -->\n\nb\n")
    assert page.startswith("a\n\n```text\n$ vbdrop data get --help\nUsage: vbdrop data get")
    assert page.endswith("```\n\nb\n")
    assert "<!-- other -->" in filled("<!-- other -->")


def test_the_program_itself_lists_its_verbs():
    assert "compress" in help_of("")


def test_a_table_stands_below_the_title_of_the_page():
    assert filled("<!-- table: 3 -->").startswith("## Table 3: ")

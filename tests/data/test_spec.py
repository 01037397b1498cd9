from vbdrop.data.spec import FileLayout

LAYOUT = FileLayout(folders=("deep/er", "."), files=("a", "b"), read=lambda folder: None, suffixes=("", ".gz"))


def test_nothing_is_found_where_nothing_is(tmp_path):
    assert LAYOUT.found_in(tmp_path) is None
    assert LAYOUT.found_in(tmp_path / "nowhere") is None


def test_any_file_with_any_suffix_counts_but_not_a_folder_of_that_name(tmp_path):
    (tmp_path / "a").mkdir()
    assert LAYOUT.found_in(tmp_path) is None
    (tmp_path / "b.gz").touch()
    assert LAYOUT.found_in(tmp_path) == tmp_path


def test_the_first_folder_wins(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "b").touch()
    assert LAYOUT.found_in(tmp_path) == tmp_path / "deep" / "er"

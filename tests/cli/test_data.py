"""``vbdrop data``."""


def test_the_list_says_what_is_here(vbdrop, tmp_path):
    result = vbdrop("data", "--data-dir", tmp_path)
    assert result.code == 0
    assert "comes with the package" in result.out
    assert "not here" in result.out
    assert "vbdrop data get NAME fetches one." in result.out
    found = {each["name"]: each["here"] for each in vbdrop("data", "--data-dir", tmp_path, "--json").json}
    assert found == {"digits": True, "mnist": False, "fashion-mnist": False, "cifar10": False, "svhn": False}


def test_damaged_files_are_found_by_a_check(vbdrop, tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"no digits")
    result = vbdrop("data", "--data-dir", tmp_path, "--check")
    assert result.code == 1
    assert "train-images-idx3-ubyte" in result.out


def test_mistakes(vbdrop, tmp_path):
    assert vbdrop("data", "get", "digits").code == 2
    assert "comes with the package" in vbdrop("data", "get", "digits").err
    assert "`name` must be one of digits, mnist" in vbdrop("data", "get", "imagenet").err
    missing = vbdrop("data", "--data-dir", tmp_path / "none")
    assert (missing.code, missing.err.count("\n")) == (1, 1)

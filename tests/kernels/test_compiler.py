"""One search for the compiler."""

from vbdrop.kernels.compiler import compiler_version, find_compiler


def write_compiler(path, version):
    path.write_text(f"#!/bin/sh\necho '{version}'\necho 'and a licence'\n")
    path.chmod(0o755)
    return path


def test_the_compiler_of_the_environment_comes_first(tmp_path, monkeypatch):
    mine = write_compiler(tmp_path / "my-cc", "mine 1.0")
    monkeypatch.setenv("CC", str(mine))
    assert find_compiler() == str(mine)


def test_one_that_is_not_there_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    assert find_compiler() is None
    clang = write_compiler(tmp_path / "clang", "clang 1.0")
    assert find_compiler() == str(clang)
    gcc = write_compiler(tmp_path / "gcc", "gcc 1.0")
    assert find_compiler() == str(gcc)


def test_its_version_is_the_first_line_that_it_says(tmp_path):
    assert compiler_version(str(write_compiler(tmp_path / "cc", "cc 12.2"))) == "cc 12.2"


def test_one_that_fails_has_no_version(tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert compiler_version(str(broken)) == "unknown"

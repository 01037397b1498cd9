import subprocess
from pathlib import Path

import pytest
from examples.digit.export_digit import main
from tests.trained import above

FOLDER = Path(__file__).parents[2] / "examples/digit"


@pytest.fixture(scope="module")
def program(tmp_path_factory, compiler):
    """The program, compiled without a warning, the image, and the digit that it shows."""
    folder = tmp_path_factory.mktemp("digit")
    digit = main(["--epochs", "1", "--folder", str(folder)])
    files = [str(FOLDER / "main.c"), str(folder / "digit.c")]
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([compiler, *strict, "-O1", "-o", folder / "digit", *files, "-I", str(folder), "-lm"], check=True)
    return folder, digit


@pytest.mark.trained
def test_the_program_reads_the_digit(program):
    folder, digit = program
    said = subprocess.run([folder / "digit", folder / "digit.pgm"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{digit}, with probability ")
    above(0.5, float(said.split()[-1]), mean=0.994, sd=0.0028)
    assert float(said.split()[-1]) <= 1


@pytest.mark.parametrize("content", [None, b"P5\n28 28\n255\n", b"P5\n2 2\n255\n1234", b"hello"])
def test_what_is_no_such_image_is_refused(program, tmp_path, content):
    image = tmp_path / "image.pgm"
    if content is not None:
        image.write_bytes(content)
    ended = subprocess.run([program[0] / "digit", image], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "usage: digit IMAGE.pgm" in ended.stderr

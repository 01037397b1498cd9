"""Files that were made to do harm: they are refused or load, within bounded memory, and nothing else happens."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.compression.files import hostile_files
from tests.stress import count

from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.model_file import load

PROJECT = Path(__file__).parents[3]


@pytest.mark.stress
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="NOT TESTED: only Linux tells the peak of a process"
)
def test_a_hostile_file_is_refused_or_loads_within_bounded_memory(bases, tmp_path):
    torch.save(bases, tmp_path / hostile_files.BASES)
    number = count(sample=30, full=5000)
    command = [sys.executable, "-m", "tests.compression.files.hostile_files", str(tmp_path), str(number), "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    outcomes = found["outcomes"]
    assert sum(outcomes.values()) == number
    for outcome in ("refused", "called", "not callable"):  # the changes reach all that can happen
        assert sum(n for name, n in outcomes.items() if name.endswith(outcome)) > number / 50


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    return hostile_files.bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture
def attempt(bases, tmp_path, monkeypatch):
    """Write a file by one of the changes, and load and call it."""

    def attempted(change, seed=0, base=0):
        monkeypatch.setattr(hostile_files, "CHANGES", (change,))
        path = tmp_path / "hostile.safetensors"
        hostile_files.written(random.Random(seed), bases[base], path)
        model = load(path, bases[base].model)
        with torch.no_grad():
            return model(bases[base].inputs)

    return attempted


def test_the_valid_files_load(bases, tmp_path):
    for base in bases:
        path = tmp_path / "net.safetensors"
        path.write_bytes(base.content)
        assert hostile_files.attempt(base, path) == ("called", "")


@pytest.mark.parametrize("target", hostile_files.UNSAFE)
def test_a_program_cannot_name_what_is_unsafe(attempt, target):
    """Such as the sparse tensors whose indices are not checked, through which a file could write to any address."""

    def named(rng, header, tensors):
        hostile_files.chain(header, tensors, [target, None])

    with pytest.raises(FileFormatError, match=f"{target} is not one that a program can call"):
        attempt(named)


def test_many_cuts_of_one_list_are_refused(attempt):
    with pytest.raises(FileFormatError, match=r"the plan names [\d,]+ indices; 16\d,\d+ are allowed"):
        attempt(hostile_files.many_cuts, seed=1)


def test_many_buffers_of_one_list_are_refused(attempt):
    with pytest.raises(FileFormatError, match=r"the plan names [\d,]+ indices; 16\d,\d+ are allowed"):
        attempt(hostile_files.many_buffers, seed=1)


@pytest.mark.parametrize("depth", [70, 300])
@pytest.mark.parametrize("part", ["nodes", "cut", "set"])
def test_deep_data_are_refused(attempt, depth, part):
    def deep(rng, header, tensors):
        header["plan"][part] = hostile_files.nested(rng, depth, 1)

    with pytest.raises(FileFormatError, match="nested at most 64 deep"):
        attempt(deep)


def test_a_program_that_doubles_its_input_forty_times_is_refused_when_it_is_called(attempt):
    def doubled(rng, header, tensors):
        hostile_files.chain(header, tensors, ["aten.cat.default", [None, None], 0], repeat=40)

    with pytest.raises(ValueError, match=r"would take more than [\d,]+ bytes of memory; .* max_call_bytes"):
        attempt(doubled)


def test_sizes_that_a_program_computes_cannot_grow_without_end(attempt):
    def squared(rng, header, tensors):
        size, square = ["aten.sym_size.int", {"#": 0}, 1], ["operator.mul", None, None]
        hostile_files.chain(header, tensors, size, *[square] * 60)

    with pytest.raises(ValueError, match="a program computed the size"):
        attempt(squared)


def test_a_normalization_with_too_few_numbers_does_not_read_past_their_end(attempt):
    with pytest.raises(ValueError, match="must have one number per channel"):
        attempt(hostile_files.short_norms)


STREAM = 4  # the file with norms that count and recurrent layers


@pytest.mark.parametrize("rows", [1, 2])
def test_a_gru_without_rows_for_its_gates_is_an_error_and_not_the_end_of_the_process(attempt, rows):
    def short(rng, header, tensors):
        shapes = {"given": [2, 6, 5], "state": [1, 2, rows], "first": [rows, 5], "second": [rows, rows]}
        tensors |= {name: torch.rand(shape) for name, shape in shapes.items()}
        reads = [[f"n{name}", "get_attr", name] for name in shapes]
        values = [{"#": number} for number in range(1, 5)]
        arguments = [*values[:2], values[2:], False, 1, 0.0, False, False, True]
        call = ["y", "call_function", "aten.gru.input", arguments]
        nodes = [["x", "placeholder", "x"], *reads, call, ["result", "output", "output", [{"#": 5}]]]
        header["plan"] = {"nodes": nodes, "buffers": {name: ["float32", shape] for name, shape in shapes.items()}}
        hostile_files.trim(header, tensors)

    with pytest.raises(ValueError, match="the tensors of a GRU must have the shapes"):
        attempt(short, base=STREAM)


@pytest.mark.parametrize("path", ["free", "norm"])
def test_a_norm_cannot_ask_for_a_scale_that_is_larger_than_its_file(attempt, path):
    def wide(rng, header, tensors):
        header["plan"]["set"][path]["scaled"] = 2**28

    with pytest.raises(FileFormatError, match=r"the model would take 4,29\d,\d+,\d+ bytes of memory"):
        attempt(wide, base=STREAM)


@pytest.mark.parametrize(("number", "value"), [("count", 0), ("count", 1), ("from_end", 0)])
def test_a_norm_counts_the_channels_that_it_has_at_least(attempt, number, value):
    def other(rng, header, tensors):
        header["plan"]["set"]["norm"][number] = value

    with pytest.raises(FileFormatError, match=r"the norm 'norm' counts \d+ channels, on axis \d from the end"):
        attempt(other, base=STREAM)


@pytest.mark.parametrize("training", [False, True])
def test_a_normalization_by_statistics_that_are_not_there_is_refused(attempt, training):
    def without(rng, header, tensors):
        target = "aten._native_batch_norm_legit.no_stats"
        hostile_files.chain(header, tensors, [target, {"#": 0}, "W", "B", training, 0.1, 1e-5])
        text = json.dumps(header["plan"]).replace('"W"', "null").replace('"B"', "null")
        header["plan"] = json.loads(text)

    if training:  # the statistics of the input
        assert attempt(without)[0].shape == (2, 784)
        return
    with pytest.raises(FileFormatError, match=r"`training` of .*no_stats must be bool"):
        attempt(without)


@pytest.mark.parametrize("place", [2, 3])
def test_a_mode_that_kernels_do_not_check_cannot_be_computed(attempt, place):
    def computed(rng, header, tensors):
        size = ["aten.sym_size.int", {"#": 0}, 1]
        call = ["aten.grid_sampler_2d.default", {"#": 0}, {"#": 0}, 0, 0, False]
        call[1 + place] = {"#": 1}
        hostile_files.chain(header, tensors, size, call)

    with pytest.raises(FileFormatError, match=r"_mode` of aten\.grid_sampler_2d\.default must be int"):
        attempt(computed)


def test_a_call_leaves_the_state_of_torch_alone(attempt):
    torch.manual_seed(123)
    with pytest.raises(FileFormatError):
        attempt(lambda rng, header, tensors: hostile_files.chain(header, tensors, ["aten.manual_seed.default", 0]))
    assert torch.initial_seed() == 123

import time
from pathlib import Path

import pytest
import torch
from torch import nn

from vbdrop.compression import compress
from vbdrop.exporting import Exported, export, measure
from vbdrop.exporting.measure import Measured, Measurement


def network(units: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 10))


@pytest.fixture(scope="module")
def measured(tmp_path_factory, compiler):
    folder = tmp_path_factory.mktemp("exports")
    model = network(512)
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight[8:] = 0
    small = compress(model, torch.randn(4, 256))
    exports = [export(small, folder / name) for name in ("net.onnx", "net.pt2", "net.c")]
    return small, exports, measure(model, small, exports, rounds=3)


def test_every_way_to_run_it_has_a_row(compiler, measured):
    _, _, found = measured
    assert list(found.rows) == [
        "original, PyTorch",
        "small, PyTorch",
        "original, ONNX Runtime",
        "small, ONNX Runtime",
        "small, torch.export",
        "small, C",
    ]
    assert all(set(row.seconds) == {1, 64} for row in found.rows.values())


def test_every_file_is_counted(measured, tmp_path):
    small, exports, found = measured
    size = small.save(tmp_path / "net.safetensors")
    parameters = sum(value.numel() for value in network(512).parameters())
    assert 4 * parameters < found.rows["original, PyTorch"].bytes < 4 * parameters + 1000
    assert found.rows["small, PyTorch"].bytes == size
    assert found.rows["small, C"].bytes == sum(path.stat().st_size for path in exports[2].paths)
    assert found.rows["original, ONNX Runtime"].bytes > 4 * parameters
    assert found.smaller("small, PyTorch") == pytest.approx(found.rows["original, PyTorch"].bytes / size)


def test_every_way_is_timed_in_as_many_rounds(measured):
    _, _, found = measured
    taken = [seconds for row in found.rows.values() for seconds in row.seconds.values()]
    assert len({len(seconds) for seconds in taken}) == 1
    assert all(second > 0 for seconds in taken for second in seconds)


def test_the_table_can_be_read(measured):
    lines = str(measured[2]).splitlines()
    assert len(lines) == 7
    assert lines[0].split() == ["one", "thread", "bytes", "smaller", "batch", "1", "faster", "batch", "64", "faster"]
    assert "µs" in lines[1]
    assert lines[1].count("1.0x") == 3


def test_a_ratio_is_taken_within_each_round():
    found = Measurement({"a": Measured(8, {1: [4.0, 40.0, 4.0]}), "b": Measured(2, {1: [2.0, 20.0, 1.0]})})
    assert found.faster("b", 1, than="a") == 2.0
    assert found.smaller("b", than="a") == 4.0
    assert found.rows["a"].latency(1) == 4.0


def test_a_plain_model_counts_its_own_file():
    model = network(8)
    found = measure(model, model, example_inputs=torch.randn(2, 256), batches=(2,), rounds=2)
    assert found.rows["small, PyTorch"].bytes == found.rows["original, PyTorch"].bytes
    assert list(found.rows["small, PyTorch"].seconds) == [2]


def test_several_exports_of_one_kind_have_a_row_each(tmp_path):
    inputs, sizes = torch.randn(2, 16), (4, 8, 12)
    (tmp_path / "more").mkdir()
    models = [nn.Linear(16, size) for size in sizes]
    paths = [tmp_path / "a.pt2", tmp_path / "b.pt2", tmp_path / "more" / "b.pt2"]
    exports = [export(model, path, inputs) for model, path in zip(models, paths, strict=True)]
    found = measure(models[0], models[0], exports, inputs, batches=(2,), rounds=2)
    rows = {name: row.bytes for name, row in found.rows.items() if "torch.export" in name}
    names = ["small, torch.export", "small, torch.export, b.pt2", f"small, torch.export, {paths[2]}"]
    assert rows == {name: exported.bytes for name, exported in zip(names, exports, strict=True)}
    assert len({line.index("x   ") for line in str(found).splitlines()[1:]}) == 1


def test_a_slow_model_gets_every_sample_too():
    seen = set()

    class Slow(nn.Module):
        def forward(self, x):
            if len(x) == 1:
                seen.add(int(x))
            time.sleep(0.002)
            return x

    measure(Slow(), nn.Identity(), example_inputs=torch.arange(6.0)[:, None], batches=(1,), rounds=6)
    assert seen == set(range(6))


def test_a_model_that_writes_to_its_input_leaves_the_example():
    inputs = torch.randn(3, 4)
    before = inputs.clone()
    model = nn.Sequential(nn.LeakyReLU(0.1, inplace=True), nn.Linear(4, 2))
    measure(model, model, example_inputs=inputs, batches=(1,), rounds=2)
    assert torch.equal(inputs, before)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rounds": 0}, ValueError, "`rounds` must be an int >= 1; got 0"),
        ({"rounds": -1}, ValueError, "`rounds` must be an int >= 1; got -1"),
        ({"rounds": "3"}, ValueError, "`rounds` must be an int >= 1; got '3'"),
        ({"batches": 4}, ValueError, "`batches` must be a list of batch sizes, ints >= 1; got 4"),
        ({"batches": (0,)}, ValueError, r"`batches` must be a list of batch sizes, ints >= 1; got \(0,\)"),
        ({"batches": ()}, ValueError, r"`batches` must be a list of batch sizes, ints >= 1; got \(\)"),
        (
            {"exports": Exported((Path("net.c"),), 1, True, 0.0)},
            TypeError,
            r"`exports` must be a list of what vbdrop\.export returned; got Exported\(",
        ),
        ({"exports": ["net.c"]}, TypeError, r"`exports` must be a list of what .* got \['net\.c'\]"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        measure(nn.Linear(4, 2), nn.Linear(4, 2), **{"example_inputs": torch.ones(2, 4), "rounds": 2, **arguments})

import json

from benchmarks.models.__main__ import matches, read
from benchmarks.models.isolation import isolated
from benchmarks.models.table import ENTRIES

AT_LEAST = 100


def test_the_table_has_a_hundred_entries_of_three_libraries():
    assert len(ENTRIES) >= AT_LEAST
    assert {key.partition("/")[0] for key in ENTRIES} == {"timm", "torchvision", "transformers"}


def test_patterns_are_with_or_without_the_library():
    assert matches("timm/resnet18", "timm/*")
    assert matches("timm/resnet18", "resnet*")
    assert not matches("timm/resnet18", "net18")


def test_the_last_line_of_an_entry_counts(tmp_path):
    path = tmp_path / "models.jsonl"
    assert read(path) == {}
    path.write_text("\n".join(json.dumps({"entry": "timm/resnet18", "run": run}) for run in (1, 2)))
    assert read(path) == {"timm/resnet18": {"entry": "timm/resnet18", "run": 2}}


def test_an_entry_that_takes_too_long_or_too_much_is_a_row():
    key = next(iter(ENTRIES))
    assert isolated(key, seconds=0.01)["errors"] == {"process": "took longer than 0.01 s"}

"""Two records of one run."""

import json
import shutil

import pytest

from vbdrop.experiments import Record, compare, execute


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of two epochs, made twice."""
    from vbdrop.experiments import make_method, resolve
    from vbdrop.experiments.inputs import facts
    from vbdrop.train import Budget

    settings = {"model": "mlp", "model_args": {"units": 12}, "data": "digits", "n_train": 300}
    method = make_method("vbd-weights", {"kl_weight": 20.0})
    run = resolve(method, checksum=facts("digits").checksum, budget=Budget(epochs=2), **settings)
    return tuple(execute(run, tmp_path_factory.mktemp(name)) for name in ("first", "second"))


@pytest.fixture
def pair(made, tmp_path):
    """The run, and a copy of the second that a test may change."""
    return made[0], Record(shutil.copytree(made[1].folder, tmp_path / "copy"))


def changed(record, name, change):
    path = record.folder / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_the_same_run_is_the_same_though_it_took_another_time(pair):
    found = compare(*pair)
    assert found.equal
    assert found.fields["metrics.jsonl"] > 10
    assert found.fields["result.json"] > 30
    assert found.fields["details.json"] > 100
    assert found.surroundings == ()
    assert "seconds" in pair[0].metrics[0]


def test_the_last_bit_of_a_figure_is_seen_and_named(pair):
    loss = pair[1].result["loss"]
    changed(pair[1], "result.json", lambda result: result.update(loss=loss * (1 + 2**-52)))
    (found,) = compare(*pair).differences
    assert (found.file, found.field, found.recorded) == ("result.json", "loss", loss)
    assert found.again != loss
    assert str(found).startswith("result.json: loss was ")


def test_a_field_deep_inside_that_is_missing_now_is_seen(pair):
    changed(pair[1], "result.json", lambda result: result["layers"][1].pop("nonzero"))
    (found,) = compare(*pair).differences
    assert (found.field, found.again) == ("layers[1].nonzero", "nothing")


def test_what_was_not_written_down_when_the_record_was_made_is_no_difference(made, pair):
    changed(pair[1], "details.json", lambda details: details["sweep"][0].pop("bytes"))
    found = compare(pair[1], made[0])
    assert found.equal
    assert found.fields["details.json"] == compare(*made).fields["details.json"] - 1


def test_an_epoch_with_another_figure_is_named(pair):
    path = pair[1].folder / "metrics.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{json.dumps(json.loads(second) | {'kl': 1.0, 'seconds': 9e9})}\n")
    assert [each.field for each in compare(*pair).differences] == ["epoch 2.kl"]


def test_details_that_were_not_kept_are_not_compared(made, pair):
    (pair[1].folder / "details.json").unlink()
    assert "details.json" not in compare(pair[1], made[0]).fields
    assert compare(pair[1], made[0]).equal


def test_another_machine_is_said_and_is_no_difference_of_the_run(pair):
    changed(pair[1], "environment.json", lambda found: found["sessions"][-1]["versions"].update(torch="9.9"))
    found = compare(*pair)
    assert found.equal
    assert [each.field for each in found.surroundings] == ["versions.torch"]
    changed(pair[1], "environment.json", lambda found: found["sessions"][-1]["versions"].pop("torch"))
    for recorded, again in (pair, pair[::-1]):  # what only one of them has written down may be why
        (found,) = compare(recorded, again).surroundings
        assert (found.field, "nothing" in (found.recorded, found.again)) == ("versions.torch", True)
    (pair[1].folder / "environment.json").unlink()
    assert compare(*pair).equal

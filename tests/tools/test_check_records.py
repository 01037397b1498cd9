"""The check that makes records again."""

import json

import pytest
from tests.stress import only_in_stress
from tools.check_records import PROJECT, again, candidates, is_known, pick

from vbdrop.experiments import Record, execute, make_method, resolve
from vbdrop.experiments.environment import commit
from vbdrop.experiments.inputs import facts
from vbdrop.train import Budget


def tiny(tmp_path, seed=0, arithmetic="plain"):
    config = resolve(
        make_method("vbd-rates", {}), model="mlp", model_args={"units": 8}, data="digits", n_train=200,
        checksum=facts("digits").checksum, budget=Budget(epochs=1, seed=seed), arithmetic=arithmetic,
    )  # fmt: skip
    return execute(config, tmp_path)


def rename_commit(record, name):
    path = record.folder / "environment.json"
    environment = json.loads(path.read_text())
    environment["sessions"][-1]["versions"]["commit"] = name
    path.write_text(json.dumps(environment))


def test_the_commit_picks_and_the_order_of_the_folder_does_not(tmp_path):
    records = [Record(tmp_path / f"run-{index}") for index in range(30)]
    picked = pick(records, 3, "abc")
    assert pick(records[::-1], 3, "abc") == picked
    assert len({record.folder for record in picked}) == 3
    assert pick(records, 3, "abd") != picked
    assert len(pick(records[:2], 3, "abc")) == 2


def test_only_what_can_be_made_again_is_picked(tmp_path):
    known = commit().rstrip("+")
    good, elsewhere, changed, kernels = (
        tiny(tmp_path, seed=seed, arithmetic=arithmetic)
        for seed, arithmetic in ((0, "plain"), (1, "plain"), (2, "plain"), (3, "kernels"))
    )
    for record, name in ((good, known), (elsewhere, "0" * 40), (changed, f"{known}+"), (kernels, known)):
        rename_commit(record, name)
    assert [record.folder for record in candidates(tmp_path)] == [good.folder] * is_known(known)
    assert candidates(tmp_path, seconds=0.0) == []


@pytest.mark.parametrize("damaged", ["config.json", "environment.json"])
def test_a_damaged_record_is_left_out_and_named(tmp_path, capsys, damaged):
    record = tiny(tmp_path)
    (record.folder / damaged).write_text("{")
    assert candidates(tmp_path) == []
    assert f"{record.folder.name} is left out: " in capsys.readouterr().err


def test_a_run_of_two_commits_cannot_be_made_again_at_one(tmp_path):
    record = tiny(tmp_path)
    path = record.folder / "environment.json"
    (session,) = json.loads(path.read_text())["sessions"]
    known = {**session, "versions": {**session["versions"], "commit": commit().rstrip("+")}}
    path.write_text(json.dumps({"sessions": [known]}))
    assert len(candidates(tmp_path)) == is_known(known["versions"]["commit"])
    path.write_text(json.dumps({"sessions": [session | {"versions": {"commit": "0" * 40}}, known]}))
    assert candidates(tmp_path) == []


@only_in_stress
def test_a_record_comes_out_the_same_and_a_changed_one_does_not(tmp_path):
    record = tiny(tmp_path / "records")
    assert again(record, PROJECT / "src", tmp_path / "again") == "equal"
    result = json.loads((record.folder / "result.json").read_text())
    (record.folder / "result.json").write_text(json.dumps(result | {"nll": result["nll"] + 1e-15}))
    assert again(record, PROJECT / "src", tmp_path / "again") == "different"

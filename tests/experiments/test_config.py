"""What identifies a run, and what does not."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from vbdrop.experiments import Config, make_method, record_of, resolve
from vbdrop.experiments.config import from_dict
from vbdrop.methods import VBDWeights
from vbdrop.train import Budget, RecordError

CONFIG = Config(
    method="plain",
    version=1,
    hyper={"rate": 0.5, "steps": [1, 2]},
    model="mlp",
    model_args={"units": 12, "inputs": 784, "classes": 10},
    data="digits",
    checksum="ab" * 32,
)


def test_the_id_is_this_one_on_every_machine():
    """It names the folders of published records: a change of it loses them all."""
    assert CONFIG.id == "2d4d19fb735e"
    assert CONFIG.name == f"plain-mlp-digits-{CONFIG.id}"


PUBLISHED = sorted((Path(__file__).parents[2] / "records").glob("*/config.json"))


def test_published_runs_keep_their_names():
    """What a method learned later must not change them: its new hyper-parameters are options."""
    assert PUBLISHED
    for path in PUBLISHED:
        config = from_dict(json.loads(path.read_text()))
        assert config.name == path.parent.name
        resolved = replace(config, hyper=config.build_method().settings())
        assert resolved.name == path.parent.name
        assert resolved.as_dict() == config.as_dict()


def test_what_a_record_lacks_has_the_value_that_its_run_had():
    """And not today's default: a method may have learned better ones since."""
    run = resolve(
        make_method("vbd-weights", VBDWeights.absent()), model="mlp", data="digits", checksum="", budget=Budget()
    )
    written = run.as_dict()
    assert written["hyper"].keys() >= VBDWeights.absent().keys()
    old = {
        **written,
        "hyper": {name: value for name, value in written["hyper"].items() if name not in VBDWeights.absent()},
    }
    assert from_dict(old) == from_dict(written) == run
    assert from_dict(old).build_method() == run.build_method()
    assert make_method("vbd-weights", {"refine": 0.25}).identity()["refine"] == 0.25


def test_the_order_of_settings_and_the_place_of_the_records_do_not_matter(tmp_path):
    turned = replace(CONFIG, hyper=dict(reversed(CONFIG.hyper.items())))
    assert turned.id == CONFIG.id
    assert record_of(CONFIG, tmp_path / "a").folder.name == record_of(turned, tmp_path / "b").folder.name


@pytest.mark.parametrize(
    "change",
    [
        {"method": "vbd-rates"},
        {"version": 2},
        {"hyper": {"rate": 0.4, "steps": [1, 2]}},
        {"model": "lenet-5"},
        {"model_args": {"units": 13}},
        {"data": "mnist"},
        {"checksum": "cd" * 32},
        {"normalise": "centred"},
        {"n_valid": 5},
        {"n_train": 100},
        {"budget": Budget(seed=1)},
        {"budget": Budget(epochs=3)},
        {"budget": Budget(lr=2e-3)},
        {"budget": Budget(shrink_every=1)},
        {"arithmetic": "plain"},
        {"split": "group"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_matters(change):
    assert replace(CONFIG, **change).id != CONFIG.id


def test_settings_come_back_from_json(tiny):
    for config in (
        CONFIG,
        tiny(arithmetic="plain"),
        tiny(n_valid=50, split="block"),
        tiny("adversarial-dropout"),
        tiny("vbd-gates", shrink_every=2),
    ):
        again = from_dict(json.loads(json.dumps(config.as_dict())))
        assert again.id == config.id
        assert again.as_dict() == config.as_dict()


def test_a_method_comes_back_with_its_hyper_parameters(tiny):
    config = tiny("vbd-weights", hyper={"kl_weight": 0.5})
    method = from_dict(config.as_dict()).build_method()
    assert method == make_method("vbd-weights", {"kl_weight": 0.5})
    assert set(config.hyper) == {each.name for each in fields(method)}
    refined = tiny("vbd-weights", hyper={"kl_weight": 0.5, "refine": 0.25})
    assert refined.id != config.id
    assert from_dict(refined.as_dict()).build_method().refine == 0.25
    with pytest.raises(RecordError, match="was made with version 99 of vbd-weights; version 1 is installed"):
        replace(config, version=99).build_method()


def test_what_is_left_out_has_its_default_written_down():
    default, given = (
        resolve(
            make_method("plain", {}), model="mlp", model_args=arguments, data="digits", checksum="", budget=Budget()
        )
        for arguments in ({}, {"units": 340})
    )
    assert default.id == given.id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "resnet"}, "`model` must be one of mlp, .*; got 'resnet'"),
        ({"model_args": {"depth": 3}}, "the network mlp has no argument 'depth'; it has units, inputs, classes"),
        ({"n_valid": -1}, "`n_valid` must be a number of examples, an int >= 0; got -1"),
        ({"budget": Budget(shrink_every=2)}, "`shrink_every` must be None for Plain"),
        ({"n_train": 0}, "`n_train` must be a number of examples, an int >= 1; got 0"),
    ],
)
def test_wrong_settings_are_named(change, message):
    settings = {"model": "mlp", "data": "digits", "checksum": "", "budget": Budget(), **change}
    with pytest.raises(ValueError, match=message):
        resolve(make_method("plain", {}), **settings)


def test_wrong_hyper_parameters_are_named():
    with pytest.raises(ValueError, match=r"`method` must be one of plain, .*; got 'magic'"):
        make_method("magic", {})
    with pytest.raises(ValueError, match="the method vbd-weights has no hyper-parameter 'speed'; it has kl_weight, "):
        make_method("vbd-weights", {"speed": 1})
    with pytest.raises(ValueError, match="`kl_weight` of VBDWeights must be a finite number; got 'much'"):
        make_method("vbd-weights", {"kl_weight": "much"})


@pytest.mark.parametrize("change", [{"budget": {"epochs": 0}}, {"budget": 3}, {"extra": 1}])
def test_settings_from_a_damaged_file_are_an_error(change):
    with pytest.raises(RecordError, match="the settings of a run"):
        from_dict({**CONFIG.as_dict(), **change})
    with pytest.raises(RecordError, match="the settings of a run must have"):
        from_dict([1, 2])


def test_a_split_is_no_part_of_a_run_that_holds_nothing_out(tiny):
    assert tiny(split="block").id == tiny().id
    assert tiny(split="block", n_valid=50).id != tiny(n_valid=50).id


def test_an_unknown_arithmetic_or_split_is_refused(tiny):
    with pytest.raises(ValueError, match="`arithmetic` must be one of kernels, plain; got 'magic'"):
        tiny(arithmetic="magic")
    with pytest.raises(ValueError, match="`split` must be one of image, group, block; got 'half'"):
        tiny(split="half")

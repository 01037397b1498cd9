"""Noise and rates, against what was kept of the model."""

import re

from vbdrop.report.noise import MOST, dropout_rates, log_alphas


def test_a_histogram_a_layer_with_its_dead_weights(run):
    vbd = run("vbd")
    (figure,) = log_alphas([vbd], ["a"])
    label = re.search(r'aria-label="([^"]+)"', figure.svg)[1]
    for layer in vbd.result["layers"]:
        rate = vbd.result["rates"][layer["name"]]
        assert f"{layer['name']}: {rate['dead']:,} of {rate['count']:,} dead" in label


def test_rates_as_a_picture_and_as_a_table(run):
    vbd, plain = run("vbd"), run("plain")
    figure, none, grid = dropout_rates([vbd, plain], ["a", "b"])
    rate = vbd.result["rates"]["output"]
    assert f"output: mean {rate['p']:.3f}" in figure.svg
    assert none.text == "plain has no learned dropout rates."
    assert grid.rows[-1][:4] == ("output", f"{rate['count']:,}", f"{rate['p']:.3f}", f"{rate['dead']:,}")


def test_a_deep_network_shows_its_first_and_last_layers(run):
    vbd = run("vbd")
    layer = vbd.details["noise"][0]
    vbd.details["noise"] = [{**layer, "name": f"layer{index}"} for index in range(20)]
    (figure,) = log_alphas([vbd], ["a"])
    assert f"{20 - MOST} layers in the middle are not shown" in figure.caption
    assert ">layer0<" in figure.svg
    assert ">layer19<" in figure.svg
    assert ">layer10<" not in figure.svg


def test_rates_that_kill_nothing_have_no_threshold(run):
    vbd = run("vbd")
    for layer in vbd.details["noise"]:
        layer["threshold"] = None
    (figure,) = log_alphas([vbd], ["a"])
    assert figure.svg

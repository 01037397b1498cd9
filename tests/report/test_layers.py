"""Layers before and after, against the record."""

from vbdrop.report.layers import layers


def test_every_layer_and_their_sum(run):
    vbd = run("vbd")
    (grid,) = layers([vbd], ["a"])
    first, small = vbd.result["layers"][0], vbd.measured["layers"][0]
    zeros = 100 * (1 - first["nonzero"] / first["weights"])
    assert grid.rows[0] == (
        "hidden.0", f"{first['weights']:,}", f"{first['nonzero']:,}", f"{zeros:.1f} %",
        f"{first['inputs_alive']} of 784", f"{first['outputs_alive']} of 12", "12 × 784",
        " × ".join(map(str, small["small_shape"])),
    )  # fmt: skip
    assert grid.rows[-1][:3] == ("all", f"{vbd.result['weights']:,}", f"{vbd.result['nonzero']:,}")
    assert grid.strong == {len(grid.rows) - 1}
    assert {len(row) for row in grid.rows} == {len(grid.header)}


def test_without_a_measurement_the_shapes_are_asked_for(run):
    grid, note = layers([run("vbd", without=["measured.json"])], ["a"])
    assert grid.header[-1] == "Outputs left"
    assert "--measure" in note.commands[0]


def test_a_layer_that_is_gone_and_units_that_nobody_counted(run):
    vbd = run("vbd")
    vbd.measured["layers"][0]["small_shape"] = None
    vbd.result["layers"][0]["inputs_alive"] = None
    (grid,) = layers([vbd], ["a"])
    assert (grid.rows[0][4], grid.rows[0][-1]) == ("? of 784", "gone")

"""``vbdrop methods``."""

from vbdrop.methods import METHODS


def test_every_method_is_listed_with_its_paper(vbdrop):
    out = vbdrop("methods").out
    for method in METHODS.values():
        (line,) = (line for line in out.splitlines() if line.strip().startswith(f"{method.name} "))
        assert method.paper in line
    assert vbdrop("methods", "--json").json[0]["name"] == "plain"
    assert len(vbdrop("methods", "--json").json) == len(METHODS)


def test_one_method_says_which_version_it_is(vbdrop):
    out = vbdrop("methods", "sparse-vd").out
    assert "Molchanov" in out
    assert "Deviations" in out
    assert "kl_weight" in out
    assert vbdrop("methods", "sparse-vd", "--json").json["knobs"] == {"kl_weight": [0.3, 0.5, 0.75, 1.0, 1.5, 2.0]}
    assert vbdrop("methods", "magic").code == 2

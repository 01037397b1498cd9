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
    assert vbdrop("methods", "sparse-vd", "--json").json["knobs"] == {"kl_weight": [0.4, 0.6, 1.0, 1.5, 2.0, 2.4]}
    assert vbdrop("methods", "magic").code == 2


def test_formulas_and_names_of_settings_are_readable(vbdrop):
    out = vbdrop("methods", "rigl").out
    assert "Every `every` steps" in out
    assert "f_t = alpha/2 (1 + cos(pi t/T))" in " ".join(out.split())
    assert "    s_t = s_f (1 - (1 - (t - t_0)/(t_1 - t_0))^3)\n" in vbdrop("methods", "gradual-pruning").out
    assert "* Type B (independent" in vbdrop("methods", "variational-dropout").out

"""``vbdrop ablation``."""

from tests.stress import only_in_stress

from vbdrop.experiments import ABLATIONS


def test_without_records_it_lists_what_is_asked_and_how_to_run_it(vbdrop, tmp_path):
    result = vbdrop("ablation", "--records", tmp_path / "none")
    assert result.code == 0
    assert result.out.startswith("Ablations: ")
    assert all(row.title in result.out for row in ABLATIONS.values())
    assert ABLATIONS["low"].question in result.out
    assert f"  vbdrop ablation --run --records {tmp_path / 'none'}\n" in result.out


@only_in_stress
def test_a_row_is_run_beside_its_base(vbdrop, tmp_path):
    part = ("ablation", "--quick", "--row", "three-stages", "--row", "late", "--records", tmp_path, "--workers", 1)
    (costs,) = vbdrop(*part, "--cost", "--json").json
    assert costs["runs"] == 2
    result = vbdrop(*part)
    assert result.code == 0
    assert result.err.startswith("2 runs to make: about ")
    base, late = vbdrop(*part, "--json").json["cells"]
    difference = late["ours"]["error"]["mean"] - base["ours"]["error"]["mean"]
    assert f" {difference:+.2f} " in result.out
    assert (late["base"], late["fixed"]["ramp"], late["command"]) == ("three-stages", 0.3, None)


def test_mistakes(vbdrop):
    assert "`row` of Ablations must be one of one-stage" in vbdrop("ablation", "--row", "magic").err
    assert "`--seeds` must be" in vbdrop("ablation", "--seeds", "0").err

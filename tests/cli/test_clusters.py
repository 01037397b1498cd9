import sys

import pytest

from vbdrop.cli.app import main


@pytest.mark.parametrize("verb", [["table", "1"], ["ablation"], ["queue"]])
def test_a_place_that_is_not_known_is_refused_before_anything_is_run(verb, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main([*verb, "--on", "slurm", "--records", str(tmp_path)])
    assert ended.value.code == 2
    assert "`--on` must be one of here, ray; got 'slurm'." in capsys.readouterr().err


def test_a_missing_ray_names_the_line_that_installs_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "vbdrop.integrations.ray", raising=False)
    options = ["--quick", "--defaults", "--row", "none", "--column", "100", "--records", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main(["table", "1", *options, "--on", "ray"])
    assert ended.value.code == 1
    assert "vbdrop: vbdrop.integrations.ray needs ray: pip install 'vbdrop[ray]'" in capsys.readouterr().err

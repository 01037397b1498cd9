"""What the verbs for tables share; the verbs themselves are in test_table.py and test_ablation.py."""

import json

from vbdrop.cli.table_verbs import Asked, answer
from vbdrop.experiments import Column, Protocol, Row
from vbdrop.train import Budget

COLUMN = Column("small", "A small network", "mlp", "digits", Budget(epochs=1), model_args={"units": 4}, n_valid=100)
PROTOCOL = Protocol(None, "An own table", "weights", (COLUMN,), (Row("original", "Original", "plain"),))


def test_any_protocol_can_be_costed_run_printed_and_written(capsys, tmp_path):
    (tmp_path / "records").mkdir()
    answer(PROTOCOL, Asked(cost=True, records=tmp_path / "records", as_json=True))
    (cost,) = json.loads(capsys.readouterr().out)
    assert (cost["method"], cost["trials"], cost["runs"]) == ("plain", 0, 1)
    files = tmp_path / "own.json", tmp_path / "own.md"
    answer(PROTOCOL, Asked(run=True, records=tmp_path / "records", keep_weights=True, output=files))
    printed = capsys.readouterr().out
    assert printed.startswith("Ablations: An own table")
    assert len(list((tmp_path / "records").glob("*/weights.safetensors"))) == 1
    (cell,) = json.loads(files[0].read_text())["cells"]
    assert f"{cell['ours']['error']['mean']:.2f}" in printed
    assert "An own table" in files[1].read_text()

import pytest
from examples.residual_from_checkpoint import main
from tests.trained import below


@pytest.mark.trained
def test_channels_go_and_the_files_have_the_same_network(capsys, tmp_path):
    small = main(["--epochs", "3", "--images", "1000", "--folder", str(tmp_path)])
    below(1, small.summary().after.macs / small.summary().before.macs, mean=0.6, sd=0.075)
    said = capsys.readouterr().out
    assert "the outputs are the same" in said
    assert "small.onnx" in said
    assert "verified" in said
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.pt", "small.safetensors", "small.onnx"}

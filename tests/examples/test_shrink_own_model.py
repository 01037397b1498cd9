from examples.shrink_own_model import main


def test_it_shrinks_to_the_target(tmp_path):
    result = main(["--epochs", "4", "--images", "2000", "--folder", str(tmp_path)])
    assert result.size <= result.limit
    assert (tmp_path / "small.safetensors").exists()
    assert (tmp_path / "small.onnx").exists()

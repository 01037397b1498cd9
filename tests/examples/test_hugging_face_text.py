import torch
from tests.integrations.extras import needs

needs("transformers", "accelerate")

from examples.hugging_face_text import Sequences, main  # noqa: E402

import vbdrop  # noqa: E402


def test_it_trains_and_comes_back(tmp_path, capsys):
    model = main(["--steps", "3", "--folder", str(tmp_path)]).eval()
    assert list(vbdrop.rates(model)) == [f"bert.encoder.layer.{index}.output.dense.gate" for index in (0, 1)]
    assert "output.dense.gate" in capsys.readouterr().out
    small = vbdrop.compress(model, {"input_ids": Sequences(2, seed=2).ids}).model
    ids = Sequences(5, seed=3).ids
    torch.testing.assert_close(small(input_ids=ids).logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-4)

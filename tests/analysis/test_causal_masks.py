import pytest
import torch
from torch import nn

import vbdrop
from vbdrop._torch_compat import causal_detection
from vbdrop.analysis.causal_masks import masks_as_given
from vbdrop.layers import Gate, Units


class Tokens(nn.Module):
    """An encoder and a decoder with a mask of which nobody says that it is causal."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        encoder = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(encoder, 1, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, batch_first=True, norm_first=True), 1)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], dtype=self.head.weight.dtype)
        x = self.embed(tokens)
        return self.head(self.decoder(x, self.encoder(x, mask), mask))


def test_the_function_of_torch_comes_back_after_an_error_too():
    detect = getattr(*causal_detection)
    with pytest.raises(ZeroDivisionError), masks_as_given():
        getattr(*causal_detection) is detect or 1 / 0
    assert getattr(*causal_detection) is detect


def test_transformers_with_a_mask_lose_their_dead_neurons(tmp_path):
    torch.manual_seed(0)
    model, tokens = Tokens(), torch.randint(9, (2, 5))
    report = vbdrop.convert_(model, Units(), example_inputs=tokens)
    neurons = [f"{name}.layers.0.linear1.weight" for name in ("encoder", "decoder")]
    assert {weight for group in report.groups[0].groups for weight in group.writers} >= set(neurons)
    with torch.no_grad():
        for gate in model.modules():
            if isinstance(gate, Gate) and len(gate.weight) == 12:
                gate.log_sigma2[:5] = 20.0
    small = vbdrop.compress(model.double(), tokens)
    assert type(small.model) is Tokens
    assert [len(small.model.get_parameter(weight)) for weight in neurons] == [7, 7]
    for shape in ((2, 5), (1, 5), (3, 8)):
        more = torch.randint(9, shape)
        torch.testing.assert_close(small.model(more), model.eval()(more))
    assert vbdrop.export(small, tmp_path / "small.pt2").verified

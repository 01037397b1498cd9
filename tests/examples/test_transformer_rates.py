import pytest
from examples.transformer_rates import main
from tests.trained import above

import vbdrop


@pytest.mark.trained
def test_every_linear_layer_learns_its_rates_and_nothing_dies(capsys):
    model = main(["--epochs", "1", "--images", "1000"])
    rates = vbdrop.rates(model)
    assert len(rates) == 6
    assert all(rate.dead == 0 for rate in rates.values())
    noisy = [module for module in model.modules() if hasattr(module, "log_alpha")]
    moved = [float((layer.log_alpha.detach() - layer.noise.log_alpha).abs().mean()) for layer in noisy]
    above(0.01, min(moved), mean=0.0705, sd=0.011)  # some rise and some fall, so that a mean of the rates may stay
    assert "entropy where it is wrong" in capsys.readouterr().out

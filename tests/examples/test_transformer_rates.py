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
    above(5e-4, min(abs(rate.p - 0.1) for rate in rates.values()), mean=0.00323, sd=0.00031)
    assert "entropy where it is wrong" in capsys.readouterr().out

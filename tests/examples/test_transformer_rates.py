from examples.transformer_rates import main

import vbdrop


def test_every_linear_layer_learns_its_rates_and_nothing_dies(capsys):
    model = main(["--epochs", "1", "--images", "1000"])
    rates = vbdrop.rates(model)
    assert len(rates) == 6
    assert all(rate.dead == 0 and abs(rate.p - 0.1) > 1e-3 for rate in rates.values())
    assert "entropy where it is wrong" in capsys.readouterr().out

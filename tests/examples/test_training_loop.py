import pytest
from examples.training_loop import dead_share, main
from tests.trained import above


@pytest.mark.trained
def test_the_network_with_learned_rates_gets_sparse(capsys):
    _, model = main(["--epochs", "2", "--weight", "0.3"])
    above(0.3, dead_share(model), mean=0.898, sd=0.0031)
    assert "times fewer weights" in capsys.readouterr().out

from examples.training_loop import dead_share, main


def test_the_network_with_learned_rates_gets_sparse(capsys):
    _, model = main(["--epochs", "2", "--weight", "0.3"])
    assert dead_share(model) > 0.3
    assert "times fewer weights" in capsys.readouterr().out

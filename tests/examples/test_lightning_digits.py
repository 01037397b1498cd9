import pytest
from tests.integrations.extras import needs

needs("lightning")

from examples.lightning_digits import main  # noqa: E402


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:The number of training batches", "ignore:everything in")
def test_it_trains_and_compresses(capsys):
    callback = main(["--epochs", "2", "--examples", "300"])
    assert callback.compressed is not None
    assert "test error" in capsys.readouterr().out

"""What the tests of the export share: a model as compiled C."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from vbdrop.exporting.c import run_c, write_c


@pytest.fixture
def as_c(tmp_path, compiler) -> Callable[[nn.Module, Tensor], Tensor]:
    """A model in eval mode and a batch -> what the compiled C gives for the batch; the source stays in net.c."""

    def answer(model: nn.Module, batch: Tensor) -> Tensor:
        source, _ = write_c(model.eval(), tmp_path / "net.c", (batch,))
        return run_c(source)((batch,))[0]

    return answer


@pytest.fixture
def difference(as_c) -> Callable[[nn.Module, Tensor], float]:
    """The largest difference between a model and its C, as a share of the largest output."""

    def largest(model: nn.Module, batch: Tensor) -> float:
        actual = as_c(model, batch)
        with torch.no_grad():
            expected = model(batch).flatten(1)
        assert actual.shape == expected.shape
        return float((actual - expected).abs().max() / expected.abs().max())

    return largest

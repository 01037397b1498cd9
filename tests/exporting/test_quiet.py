import logging
import warnings

import pytest

from vbdrop.exporting.quiet import quiet_torch


def test_warnings_and_log_lines_are_kept_back_inside_only(caplog):
    logger = logging.getLogger("torch.onnx.some.exporter")
    with quiet_torch():
        warnings.warn("of torch", FutureWarning, stacklevel=1)
        logger.warning("not installed")
        logger.error("broken")
    assert [record.message for record in caplog.records] == ["broken"]
    logger.warning("later")
    assert caplog.records[-1].message == "later"
    with pytest.warns(FutureWarning):
        warnings.warn("of yours", FutureWarning, stacklevel=1)


def test_an_error_comes_through_and_the_level_is_restored():
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    with pytest.raises(KeyError), quiet_torch():
        raise KeyError("x")
    assert logger.level == before

import logging
import sys
import warnings

import pytest

from vbdrop.exporting.quiet import quiet_torch


@pytest.mark.parametrize("package", ["torch.onnx", "onnxscript"])
def test_warnings_and_log_lines_are_kept_back_inside_only(caplog, package):
    logger = logging.getLogger(f"{package}.some.exporter")
    with quiet_torch():
        warnings.warn("of torch", FutureWarning, stacklevel=1)
        logger.warning("not installed")
        logger.error("broken")
    assert [record.message for record in caplog.records] == ["broken"]
    logger.warning("later")
    assert caplog.records[-1].message == "later"
    with pytest.warns(FutureWarning):
        warnings.warn("of yours", FutureWarning, stacklevel=1)


def test_graphs_on_stderr_are_kept_back_inside_only(capsys):
    with quiet_torch():
        print("a graph", file=sys.stderr)
    print("yours", file=sys.stderr)
    assert capsys.readouterr().err == "yours\n"


def test_an_error_comes_through_and_the_level_is_restored():
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    with pytest.raises(KeyError), quiet_torch():
        raise KeyError("x")
    assert logger.level == before

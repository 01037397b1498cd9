import pickle
import sys

import pytest

from vbdrop.layers import LAYERS, add_imported_layers_, imported


def test_nothing_is_imported_for_a_layer_of_another_package():
    before = set(sys.modules)
    add_imported_layers_()
    assert set(sys.modules) == before


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Conv2D'"):
        imported.Conv2D  # noqa: B018


def test_a_layer_of_hugging_face_joins_the_table():
    plain = pytest.importorskip("transformers.pytorch_utils", exc_type=ImportError).Conv1D
    add_imported_layers_()
    assert LAYERS[plain] is imported.Conv1D
    assert issubclass(imported.Conv1D, plain)
    assert pickle.loads(pickle.dumps(imported.Conv1D)) is imported.Conv1D

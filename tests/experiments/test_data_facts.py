"""What a table needs to know about its data."""

from vbdrop.experiments import checksums, protocol_of
from vbdrop.experiments.inputs import facts


def test_every_data_set_of_a_table_once():
    assert checksums(protocol_of(5, quick=True)) == {"digits": facts("digits").checksum}

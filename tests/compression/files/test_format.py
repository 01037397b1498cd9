from torch import nn

from vbdrop.compression.files.format import KEY, LISTS, VERSION, FileFormatError


def test_the_names_and_the_version_are_those_of_every_file_so_far():
    """A change here makes the files of users unreadable: it needs a new version and a reader for the old one."""
    assert (KEY, LISTS, VERSION) == ("vbdrop", "vbdrop:lists", 1)


def test_whoever_expects_bad_values_gets_bad_files_too():
    assert issubclass(FileFormatError, ValueError)


def test_a_model_can_have_no_tensor_of_this_name():
    assert LISTS not in nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).state_dict()

import pytest
from tests import stress


@pytest.mark.parametrize(("value", "expected"), [(None, 7), ("0", 7), ("1", 5000)])
def test_the_environment_chooses_between_the_sample_and_the_full_count(monkeypatch, value, expected):
    monkeypatch.delenv(stress.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(stress.VARIABLE, value)
    assert stress.count(sample=7, full=5000) == expected


def test_any_other_value_is_refused(monkeypatch):
    monkeypatch.setenv(stress.VARIABLE, "yes")
    with pytest.raises(ValueError, match="must be 0 or 1; got 'yes'"):
        stress.count(sample=7, full=5000)

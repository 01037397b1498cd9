"""A budget says what is wrong with it."""

import pytest

from vbdrop.train import Budget


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", 0, "`epochs` must be an int >= 1; got 0"),
        ("batch", 2.5, "`batch` must be an int >= 1; got 2.5"),
        ("evaluate_every", True, "`evaluate_every` must be an int >= 1; got True"),
        ("shrink_every", 0, "`shrink_every` must be an int >= 1; got 0"),
        ("lr", 0.0, "`lr` must be a learning rate, a number > 0; got 0.0"),
        ("lr", float("nan"), "`lr` must be a learning rate"),
        ("seed", -1, "`seed` must be an int from 0 to 4294967295; got -1"),
        ("seed", 2**32, "`seed` must be an int"),
        ("schedule", "steps", "`schedule` must be one of"),
    ],
)
def test_each_field_is_checked(field, value, message):
    with pytest.raises(ValueError, match=message):
        Budget(**{field: value})


def test_the_noise_never_repeats_the_draws_of_the_initial_weights():
    seeds = range(100)
    assert all(Budget(seed=seed).noise_seed != seed for seed in seeds)
    assert len({Budget(seed=seed).noise_seed for seed in seeds}) == len(seeds)


def test_a_budget_without_shrinking_is_written_as_it_always_was():
    assert "shrink_every" not in Budget().as_dict()
    assert Budget(shrink_every=2).as_dict()["shrink_every"] == 2
    assert Budget(**Budget(shrink_every=2).as_dict()) == Budget(shrink_every=2)

"""The network as it is."""

import pytest
from tests.trained import below

from vbdrop.methods import Plain


@pytest.mark.trained
def test_it_learns_and_changes_nothing_of_the_network(task):
    method = Plain()
    net = task.network()
    assert method.build(net) is net
    below(20, task.error(task.fit(method, epochs=10)), mean=10.0, sd=0.67)

"""The network as it is."""

from vbdrop.methods import Plain


def test_it_learns_and_changes_nothing_of_the_network(task):
    method = Plain()
    net = task.network()
    assert method.build(net) is net
    assert task.error(task.fit(method, epochs=10)) < 12

"""Where runs are made: on this machine, or on a cluster."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import typer

from vbdrop.cli.app import MissingExtraError
from vbdrop.experiments.runner import Cluster, Processes


@contextmanager
def _here(workers: int) -> Iterator[Cluster]:
    yield Processes(workers)


@contextmanager
def _ray(workers: int) -> Iterator[Cluster]:
    try:
        from vbdrop.integrations.ray import ray_cluster
    except ImportError as error:
        raise MissingExtraError(str(error)) from error
    with ray_cluster(workers) as cluster:
        yield cluster


CLUSTERS: dict[str, Callable[[int], AbstractContextManager[Cluster]]] = {"here": _here, "ray": _ray}
"""The value of ``--on`` -> a context manager that connects to that cluster."""


def check_on(on: str) -> str:
    """Return the value of ``--on`` if it is known, or raise an error.

    Example:
        >>> check_on("here")
        'here'
    """
    if on not in CLUSTERS:
        raise typer.BadParameter(f"`--on` must be one of {', '.join(CLUSTERS)}; got {on!r}.")
    return on


def cluster_of(on: str, workers: int) -> AbstractContextManager[Cluster]:
    """Connect to the place where runs are made, until the block ends.

    Args:
        on: A key of `CLUSTERS`.
        workers: The number of processes on this machine; a running cluster has its own number.

    Example:
        >>> with cluster_of("here", 2) as cluster:
        ...     cluster.size
        2
    """
    return CLUSTERS[check_on(on)](workers)

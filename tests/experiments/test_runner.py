"""Many runs by several processes: none twice, none lost, whatever happens."""

import os
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.stress import only_in_stress

from vbdrop.experiments import Runner, execute, record_of


def still_missing(runs, records):
    return lambda: [config for config in runs if not record_of(config, records).finished]


class Watch:
    """Writes down what happens, and may do something about it."""

    def __init__(self, on_progress=lambda config: None):
        self.events = []
        self.on_progress = on_progress

    def started(self, config):
        self.events.append(("started", config.id))

    def progressed(self, config, done, steps, said):
        self.events.append(("progressed", config.id))
        self.on_progress(config)

    def ended(self, config, error):
        self.events.append(("ended", config.id, error))


def children():
    """The workers that this process has started and that are still there."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended in the meantime
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"vbdrop.experiments.worker" in (stat.parent / "cmdline").read_bytes():
                found.add(int(stat.parent.name))
    return found


def test_a_run_that_fails_does_not_stop_the_others(tiny, reseeded, tmp_path):
    runs = [reseeded(tiny(epochs=2), seed) for seed in (0, 1)]
    broken = tiny(units=0)
    watch = Watch()
    runner = Runner(tmp_path, workers=2, watcher=watch)
    summary = runner.make(still_missing([runs[0], broken, runs[1]], tmp_path))
    assert {config.id for config in summary.finished} == {config.id for config in runs}
    ((failed, error),) = summary.failed
    assert failed.id == broken.id
    assert error == "`units` must be a number of units, an int >= 1; got 0."
    assert "Traceback" in summary.traces[broken.name]
    assert [kind for kind, *_ in watch.events].count("started") == 3
    assert ("ended", runs[0].id, None) in watch.events
    assert children() == set()
    # What the workers made is what this process makes.
    here = execute(runs[0], tmp_path / "here")
    assert (here.folder / "result.json").read_bytes() == (
        record_of(runs[0], tmp_path).folder / "result.json"
    ).read_bytes()
    assert record_of(runs[0], tmp_path).environment["sessions"][0]["threads"] == 1


@only_in_stress
def test_two_runners_on_one_folder_never_make_the_same_run(tiny, reseeded, tmp_path):
    runs = [reseeded(tiny(epochs=10), seed) for seed in range(5)]
    summaries = []
    make = lambda: summaries.append(Runner(tmp_path, workers=1).make(still_missing(runs, tmp_path)))  # noqa: E731
    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sessions = [len(record_of(config, tmp_path).environment["sessions"]) for config in runs]
    assert sessions == [1] * 5
    assert [summary.failed for summary in summaries] == [[], []]
    assert all(record_of(config, tmp_path).finished for config in runs)


@only_in_stress
def test_a_process_that_is_killed_is_a_failed_run_and_the_next_runner_goes_on(tiny, reseeded, tmp_path):
    first, second = tiny(epochs=40, evaluate_every=20), reseeded(tiny(epochs=2), 1)

    def kill(config):
        if config.id == first.id and not watch.killed:
            watch.killed = True
            for pid in children():
                os.kill(pid, signal.SIGKILL)

    watch = Watch(kill)
    watch.killed = False
    summary = Runner(tmp_path, watcher=watch).make(still_missing([first, second], tmp_path))
    assert [config.id for config in summary.finished] == [second.id]
    ((failed, error),) = summary.failed
    assert failed.id == first.id
    assert "its process was killed by signal 9" in error

    def stop(config):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # as Ctrl-C does
        Runner(tmp_path, watcher=Watch(stop)).make(still_missing([first], tmp_path))
    assert children() == set()
    assert not record_of(first, tmp_path).finished

    summary = Runner(tmp_path).make(still_missing([first], tmp_path))
    assert [config.id for config in summary.finished] == [first.id]
    whole = execute(first, tmp_path / "whole").folder / "result.json"
    assert whole.read_bytes() == (record_of(first, tmp_path).folder / "result.json").read_bytes()
    assert len(record_of(first, tmp_path).environment["sessions"]) == 3


@only_in_stress
def test_what_is_missing_is_asked_again_when_a_run_ends(tiny, tmp_path):
    trial = tiny(epochs=1)
    final = replace(trial, n_valid=500)

    def missing():
        ready = [trial, final] if record_of(trial, tmp_path).finished else [trial]
        return [config for config in ready if not record_of(config, tmp_path).finished]

    summary = Runner(tmp_path).make(missing)
    assert [config.id for config in summary.finished] == [trial.id, final.id]


def test_nothing_to_do_starts_nothing(tmp_path):
    watch = Watch()
    assert Runner(tmp_path, watcher=watch).make(list).finished == []
    assert watch.events == []


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_must_be_a_number_of_processes(workers, tmp_path):
    with pytest.raises(ValueError, match="`workers` must be a number of processes, an int >= 1"):
        Runner(tmp_path, workers=workers)

"""Many runs by several processes: none twice, none lost, whatever happens."""

import os
import queue
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.stress import only_in_stress

from vbdrop.experiments import Runner, execute, record_of
from vbdrop.experiments.runner import Processes


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


class Workers:
    """A cluster without processes: each worker ends a run at once, unless it is told to do something else."""

    def __init__(self, size, kinds=lambda worker, config: ["finished"]):
        self.size, self.kinds, self.hired = size, kinds, []

    def worker(self, events):
        self.hired.append(Hired(len(self.hired), events, self.kinds))
        return self.hired[-1]


class Hired:
    """One of its workers, which does nothing more once it has died."""

    def __init__(self, number, events, kinds):
        self.number, self.events, self.kinds = number, events, kinds
        self.config, self.runs, self.dead, self.stopped = None, [], False, False

    def start(self, config, task):
        self.config = config
        self.runs.append(config.id)
        for kind in [] if self.dead else self.kinds(self.number, config):
            self.dead = kind == "died"
            self.events.put((self, {"kind": kind, "done": 1, "steps": 2, "said": ""}))

    def last_words(self):
        return "gone"

    def stop(self):
        self.stopped = True


def test_a_worker_that_dies_without_a_run_gets_no_other_run(tiny, reseeded, tmp_path):
    first, second, third, fourth = (reseeded(tiny(), seed) for seed in range(4))
    cluster = Workers(2, lambda worker, config: ["finished", "died"] if config is first else ["finished"])
    watch = Watch()

    def missing():  # the last two depend on the second
        ended = {event[1] for event in watch.events if event[0] == "ended"}
        runs = (first, second, third, fourth) if second.id in ended else (first, second)
        return [run for run in runs if run.id not in ended]

    summary = Runner(tmp_path, cluster=cluster, watcher=watch).make(missing, seconds=5)
    assert [config.id for config in summary.finished] == [run.id for run in (first, second, third, fourth)]
    assert [worker.runs for worker in cluster.hired] == [[first.id], [second.id, third.id], [fourth.id]]
    assert cluster.hired[0].stopped


def test_a_run_whose_worker_dies_before_any_progress_is_started_again_once(tiny, tmp_path):
    run = tiny()

    def make(kinds):
        watch, cluster = Watch(), Workers(1, kinds)
        runner = Runner(tmp_path, cluster=cluster, watcher=watch)
        summary = runner.make(lambda: [] if ("ended", run.id, None) in watch.events else [run], seconds=5)
        assert all(worker.stopped for worker in cluster.hired)
        return len(summary.finished), [error for _, error in summary.failed], [event[-1] for event in watch.events]

    assert make(lambda worker, config: ["finished" if worker else "died"]) == (1, [], [run.id, "", run.id, None])
    assert make(lambda worker, config: ["died"]) == (0, ["gone"], [run.id, "", run.id, "gone"])
    assert make(lambda worker, config: ["progress", "died"]) == (0, ["gone"], [run.id, run.id, "gone"])


def test_a_process_that_did_not_read_its_task_can_be_stopped(tiny):
    events = queue.Queue()
    worker = Processes(1).worker(events)
    while not (pids := children()):  # right after its start it has no command line
        time.sleep(0.01)
    (pid,) = pids
    os.kill(pid, signal.SIGKILL)
    assert events.get(timeout=60) == (worker, {"kind": "died"})
    worker.start(tiny(), {})
    assert worker.last_words() == "its process was killed by signal 9"
    worker.stop()
    assert children() == set()


def test_a_process_that_is_killed_in_the_middle_of_a_line_has_died(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("""#!/bin/sh\nprintf '{"kind": "prog'\n""")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    events = queue.Queue()
    worker = Processes(1).worker(events)
    assert events.get(timeout=60) == (worker, {"kind": "died"})
    worker.stop()


def test_no_run_is_started_while_a_smaller_cluster_is_full(tiny, reseeded, tmp_path):
    runs = [reseeded(tiny(), seed) for seed in range(20)]

    def kinds(worker, config):
        if worker < 3:
            return []
        cluster.size = 1  # the nodes of the other three are lost
        return ["finished"]

    cluster = Workers(4, kinds)
    Runner(tmp_path, cluster=cluster).make(lambda: runs, seconds=0.5)
    assert len(cluster.hired) == 4


def test_nothing_to_do_starts_nothing(tmp_path):
    watch = Watch()
    assert Runner(tmp_path, watcher=watch).make(list).finished == []
    assert watch.events == []


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_must_be_a_number_of_processes(workers, tmp_path):
    with pytest.raises(ValueError, match="`workers` must be a number of processes, an int >= 1"):
        Runner(tmp_path, workers=workers)

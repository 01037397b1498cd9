"""A Ray cluster of two nodes on this machine, and its processes."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

START = "from ray.scripts.scripts import main; main()"
WAIT = """
import ray, time
ray.init(log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.2)
"""


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Node:
    """One ``ray start``, in the foreground."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        command = [sys.executable, "-c", START, "start", "--block", "--num-cpus=1", "--disable-usage-stats", *arguments]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    @property
    def workers(self) -> list[tuple[int, str]]:
        """The processes that Ray has started for tasks on this node, and what each of them is doing."""
        raylets = [pid for pid, parent, command in _processes() if parent == self._process.pid and "raylet" in command]
        return [(pid, command) for pid, parent, command in _processes() if parent in raylets and "ray::" in command]

    def stop(self) -> None:
        """End the node and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _processes() -> Iterator[tuple[int, int, str]]:
    """The number, the parent's number and the command of every process."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended in the meantime
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(folder.name), parent, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()


@contextmanager
def two_nodes() -> Iterator[tuple[dict[str, str], list[Node]]]:
    """A cluster of two nodes with one CPU each, until the block ends: the environment of its drivers, and the nodes."""
    host, port = "127.0.0.1", _free_port()
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the names of its sockets must be short
    environment = {
        **os.environ,
        "RAY_ADDRESS": f"{host}:{port}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # with Ray's 15, the workers starve beside other tests
        "RAY_memory_monitor_refresh_ms": "0",  # other tests' memory is no reason to kill a worker
    }
    alone = {name: value for name, value in environment.items() if name != "RAY_ADDRESS"}
    shared = f"--node-ip-address={host}", "--object-store-memory=100000000"
    nodes = [Node(alone, "--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}", *shared)]
    try:
        _wait_for(host, port)
        nodes.append(Node(alone, f"--address={host}:{port}", *shared))
        subprocess.run([sys.executable, "-c", WAIT], env=environment, check=True, timeout=120)
        yield environment, nodes
    finally:
        for node in reversed(nodes):
            node.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(host: str, port: int, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while True:
        with suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        assert time.monotonic() < end, "the first node did not come"
        time.sleep(0.2)

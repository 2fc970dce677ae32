"""One broker life: a fresh directory, a process, a moment of readiness, an orderly end.

``Peer`` says how a product is installed and started; ``RunningBroker`` is one life of it.
Exactly one broker runs on the machine at a time: the harness leaves the ``with`` block of
one before it enters the next.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.peers import process_tree
from benchmarks.peers.handshake import NotReadyError, wait_until_ready

_READY_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0


class PeerMissingError(Exception):
    """The product cannot be measured here; the text says why and what would help."""


class Peer(Protocol):
    """A product: what it is called, which version it is, how one broker of it is started."""

    name: str

    def install(self) -> None:
        """Make it startable; raise ``PeerMissingError`` if that is impossible."""

    def facts(self) -> dict[str, object]:
        """Versions and the configuration, as printed above the table."""

    def prepare(self, directory: Path, port: int, durability: str) -> None:
        """Everything before the process that its users also do once, such as formatting."""

    def command(self, directory: Path, port: int, durability: str) -> list[str]:
        """The broker process, in the foreground."""


class RunningBroker:
    """A broker that answers clients, and what it has cost so far."""

    def __init__(self, peer: Peer, process: subprocess.Popen[bytes], port: int) -> None:
        self.peer = peer
        self.port = port
        self.bootstrap = f"127.0.0.1:{port}"
        self.ready_ms = 0.0
        self._process = process

    @property
    def pid(self) -> int:
        """The process whose tree is measured."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """CPU time since the start."""
        return process_tree.cpu_seconds(self.pid)

    def rss_mb(self) -> float:
        """Resident memory now."""
        return process_tree.rss_mb(self.pid)

    def peak_rss_mb(self) -> float:
        """Highest resident memory so far."""
        return process_tree.peak_rss_mb(self.pid)

    def stop(self) -> None:
        """SIGTERM, as an operator would; SIGKILL to its whole session if that is not obeyed."""
        if self.alive():
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
                self._process.wait()


@contextmanager
def running(peer: Peer, directory: Path, durability: str) -> Iterator[RunningBroker]:
    """A fresh broker of ``peer`` until the end of the block; its data is gone afterwards.

    The page cache is settled before (``sync``), so that what the last broker left dirty is
    not written back at this one's expense.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    port = free_port()
    peer.prepare(directory, port, durability)
    os.sync()
    log = directory.with_suffix(".log")
    with log.open("wb") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            peer.command(directory, port, durability),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    broker = RunningBroker(peer, process, port)
    try:
        wait_until_ready(port, _READY_TIMEOUT_S, broker.alive)
        broker.ready_ms = (time.monotonic() - started) * 1000
        yield broker
    except NotReadyError as error:
        raise NotReadyError(f"{peer.name}: {error}\n{_last_lines(log)}") from None
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _last_lines(log: Path, count: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])

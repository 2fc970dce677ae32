"""One life of a product: a fresh directory, processes, a moment of readiness, an orderly end.

``Peer`` says how a product is installed and started; ``RunningBroker`` is one life of it, a single
broker or a cluster (``cluster.py``).  Exactly one product runs on the machine at a time: the
harness leaves the ``with`` block of one before it enters the next.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from benchmarks.peers import process_tree
from benchmarks.peers.handshake import NotReadyError, wait_until_ready
from benchmarks.peers.member import Member

_READY_TIMEOUT_S = 60.0


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
    """Processes that answer clients together, and what all of them have cost so far."""

    def __init__(self, name: str, ports: Sequence[int], members: Sequence[Member]) -> None:
        """``members``: the brokers, and whatever else they need to run."""
        self.name = name
        self.ports = tuple(ports)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.members = tuple(members)
        self.ready_ms = 0.0

    def alive(self) -> bool:
        """Whether every process still runs."""
        return all(member.alive() for member in self.members)

    def cpu_seconds(self) -> float:
        """CPU time of all processes since they were started."""
        return sum(member.cpu_seconds() for member in self.members)

    def rss_mb(self) -> float:
        """Resident memory now."""
        return sum(process_tree.rss_mb(member.pid) for member in self.members)

    def peak_rss_mb(self) -> float:
        """Highest resident memory so far."""
        return sum(process_tree.peak_rss_mb(member.pid) for member in self.members)

    def stop(self) -> None:
        """Brokers are asked at once, and what they rest on, which was started first, after them."""
        brokers = self.members[-len(self.ports) :]
        for member in brokers:
            member.ask_to_stop()
        for member in reversed(self.members):
            member.stop()


@contextmanager
def running(peer: Peer, directory: Path, durability: str) -> Iterator[RunningBroker]:
    """A fresh broker of ``peer`` until the end of the block; its data is gone afterwards."""
    with fresh(directory):
        port = free_ports(1)[0]
        peer.prepare(directory, port, durability)
        wait = partial(wait_until_ready, port, _READY_TIMEOUT_S)
        log = directory.with_suffix(".log")
        log.unlink(missing_ok=True)
        member = Member(peer.name, peer.command(directory, port, durability), log, wait)
        broker = RunningBroker(peer.name, (port,), (member,))
        with life(broker, ((member,),)):
            yield broker


@contextmanager
def fresh(directory: Path) -> Iterator[None]:
    """An empty directory that is gone afterwards."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def life(broker: RunningBroker, waves: Sequence[Sequence[Member]]) -> Iterator[None]:
    """Start members wave by wave, each when the last one serves; stop all at the end.

    The page cache is settled before (``sync``), so that what the last broker left dirty is
    not written back at this one's expense.
    """
    os.sync()
    began = time.monotonic()
    try:
        for wave in waves:
            for member in wave:
                member.start()
            for member in wave:
                _await(member)
        broker.ready_ms = (time.monotonic() - began) * 1000
        yield
    finally:
        broker.stop()


def _await(member: Member) -> None:
    try:
        member.wait()
    except NotReadyError as error:
        raise NotReadyError(f"{member.name}: {error}\n{member.last_lines()}") from None


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on right now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()

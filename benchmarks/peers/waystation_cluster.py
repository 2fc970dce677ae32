"""Waystation as a cluster: one etcd and several ``waystation serve``, everything else default.

Its brokers would not put two replicas of a partition on one machine unless they are told that they
may; here they must.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.peers import etcd
from benchmarks.peers.cluster import copies
from benchmarks.peers.handshake import wait_until_ready
from benchmarks.peers.member import Member
from benchmarks.peers.waystation import COMMAND, WaystationPeer

_READY_TIMEOUT_S = 60.0


class WaystationCluster:
    """Starts etcd, then ``brokers`` from the environment that runs the benchmark."""

    name = "waystation"

    def __init__(self, brokers: int = 3, options: Mapping[str, str] | None = None) -> None:
        """``options``: what a measurement needs that is no default."""
        self.brokers = brokers
        self._options = dict(options or {})

    def install(self) -> None:
        """Have etcd at hand, and see that the command starts."""
        etcd.program()
        WaystationPeer().install()

    def facts(self) -> dict[str, object]:
        """The command line of each broker."""
        command = self._command(1, "etcd://HOST:PORT", Path("DIR"), 0, "memory|disk")
        return {"brokers": self.brokers, "etcd": "1 member", "command": " ".join(command[1:])}

    def members(
        self, directory: Path, ports: Sequence[int], durability: str
    ) -> list[Sequence[Member]]:
        """The store first: a broker that finds no store does not begin."""
        store, address = etcd.member(directory)
        brokers = []
        for number, port in enumerate(ports, start=1):
            own = directory / f"broker-{number}"
            command = self._command(number, address, own, port, durability)
            wait = partial(wait_until_ready, port, _READY_TIMEOUT_S, brokers=self.brokers)
            log = directory / f"broker-{number}.log"
            brokers.append(Member(f"broker {number}", command, log, wait))
        return [[store], brokers]

    def _command(
        self, number: int, store: str, directory: Path, port: int, durability: str
    ) -> list[str]:
        settings = {
            "durability": durability,
            "replicas.share.machine": "true",
            **copies(self.brokers),
            **self._options,
        }
        return [
            *(str(COMMAND), "serve", "--node-id", str(number), "--store", store),
            *("--listen", f"127.0.0.1:{port}", "--http", "none", "--data-dir", str(directory)),
            *(part for each in settings.items() for part in ("--set", "=".join(each))),
        ]

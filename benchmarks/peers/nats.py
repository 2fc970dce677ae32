"""NATS as Debian packages it: one server with its own defaults, which keeps nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tools.test_tools import found

from benchmarks.peers.broker import PeerMissingError, RunningBroker, free_ports, fresh, life
from benchmarks.peers.member import Member
from benchmarks.peers.places import ROOT
from benchmarks.peers.rabbitmq import wait_for_port

_PROGRAM = "nats-server"


class NatsPeer:
    """Starts ``nats-server`` from where Debian's package is installed or unpacked."""

    name = "nats"

    def install(self) -> None:
        """Unpack it the first time; nothing of it is installed on the machine."""
        if found(_PROGRAM) is None:
            fetch = [sys.executable, str(ROOT / "tools" / "test_tools.py"), _PROGRAM]
            said = subprocess.run(fetch, capture_output=True, text=True, check=False)
            if found(_PROGRAM) is None:
                raise PeerMissingError(said.stderr.strip() or "Debian's package does not start")

    def facts(self) -> dict[str, object]:
        """The version, as it tells it itself."""
        asked = [_program(), "--version"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        return {
            "version": (said.stdout or said.stderr).strip().removeprefix("nats-server: v"),
            "settings": "its defaults: core NATS, nothing is stored",
        }

    @contextmanager
    def running(self, directory: Path) -> Iterator[RunningBroker]:
        """A fresh server until the end of the block."""
        with fresh(directory):
            port = free_ports(1)[0]
            log = directory.with_suffix(".log")
            log.unlink(missing_ok=True)
            command = [_program(), "--addr", "127.0.0.1", "--port", str(port)]
            member = Member(self.name, command, log, partial(wait_for_port, port, b""))
            broker = RunningBroker(self.name, (port,), (member,))
            with life(broker, ((member,),)):
                yield broker


def _program() -> str:
    program = found(_PROGRAM)
    if program is None:
        raise PeerMissingError(f"NATS is not here: tools/test_tools.py {_PROGRAM}")
    return program

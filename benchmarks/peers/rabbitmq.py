"""RabbitMQ as Debian packages it: one node, its own defaults, and no plugins.

Its quorum queues sync every message to disk before they confirm it, on one node as on several, so
that they are compared with a Waystation that does the same.  The port mapper that every Erlang node
needs runs beside it, at a port of its own, and ends with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tools.test_tools import rabbitmq

from benchmarks.peers.broker import PeerMissingError, RunningBroker, free_ports, fresh, life
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.member import Alive, Member
from benchmarks.peers.places import ROOT

_READY_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.05
_GREETING = b"AMQP\x00\x00\x09\x01"
_TOOLS = ROOT / "tools"


class RabbitmqPeer:
    """Starts ``rabbitmq-server`` from where Debian's packages are installed or unpacked."""

    name = "rabbitmq"

    def install(self) -> None:
        """Unpack it the first time; nothing of it is installed on the machine."""
        if _found() is None:
            fetch = [sys.executable, str(_TOOLS / "test_tools.py"), "rabbitmq"]
            said = subprocess.run(fetch, capture_output=True, text=True, check=False)
            if _found() is None:
                raise PeerMissingError(said.stderr.strip() or "Debian's packages do not start")

    def facts(self) -> dict[str, object]:
        """Versions, and what is not its default."""
        server, erlang = self._places()
        releases = sorted(erlang.glob("releases/*/OTP_VERSION"))
        return {
            "version": server.name.removeprefix("rabbitmq_server-"),
            "erlang": releases[-1].read_text().strip() if releases else "unknown",
            "settings": "Debian's rabbitmq-server as packaged; no plugins",
        }

    @contextmanager
    def running(self, directory: Path) -> Iterator[RunningBroker]:
        """A fresh node until the end of the block; its data is gone afterwards."""
        with fresh(directory):
            port, mapper_port, node_port = free_ports(3)
            environment = self._environment(directory, port, mapper_port, node_port)
            server, erlang = self._places()
            log = directory.with_suffix(".log")
            log.unlink(missing_ok=True)
            mapper = Member(
                "epmd",
                [str(next(erlang.glob("erts-*/bin/epmd"))), "-port", str(mapper_port)],
                directory / "epmd.log",
                partial(wait_for_port, mapper_port, b""),
                environment,
            )
            node = Member(
                self.name,
                [str(server / "sbin" / "rabbitmq-server")],
                log,
                partial(wait_for_port, port, _GREETING),
                environment,
            )
            broker = RunningBroker(self.name, (port,), (mapper, node))
            with life(broker, ((mapper,), (node,))):
                yield broker

    def _environment(
        self, directory: Path, port: int, mapper_port: int, node_port: int
    ) -> dict[str, str]:
        _, erlang = self._places()
        programs = directory / "bin"
        programs.mkdir()
        # Debian's script knows only the place where Erlang would be installed.
        for name in ("erl", "erlc"):
            write_program(programs / name, name, erlang)
        empty = directory / "empty.conf"
        empty.touch()
        plugins = directory / "enabled_plugins"
        plugins.write_text("[].\n")
        return {
            "PATH": f"{programs}:{erlang / 'bin'}:{os.environ.get('PATH', '')}",
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(node_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "logs"),
            "RABBITMQ_LOGS": str(directory / "logs" / "node.log"),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
            "RABBITMQ_CONF_ENV_FILE": str(empty),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(directory / "feature_flags"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
        }

    def _places(self) -> tuple[Path, Path]:
        found = _found()
        if found is None:
            raise PeerMissingError("RabbitMQ is not here: tools/test_tools.py rabbitmq")
        return found


def _found() -> tuple[Path, Path] | None:
    """The server and its Erlang."""
    return rabbitmq()


def write_program(path: Path, name: str, erlang: Path) -> None:
    """What ``erl`` does, for an Erlang that is not where it was built for."""
    binaries = next(erlang.glob("erts-*/bin"))
    starter = binaries / ("erlexec" if name == "erl" else name)
    path.write_text(
        f'#!/bin/sh\nROOTDIR="{erlang}" BINDIR="{binaries}" EMU=beam PROGNAME={name}\n'
        f'export ROOTDIR BINDIR EMU PROGNAME\nexec "{starter}" "$@"\n'
    )
    path.chmod(0o755)


def wait_for_port(port: int, greeting: bytes, alive: Alive) -> None:
    """Until somebody listens there and, if greeted, answers."""
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if not alive():
            raise NotReadyError("it ended while starting")
        if _answers(port, greeting):
            return
        time.sleep(_LOOK_EVERY_S)
    raise NotReadyError(f"no answer on port {port} within {_READY_TIMEOUT_S:.0f} s")


def _answers(port: int, greeting: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(greeting)
            # Connection.Start is a method frame: its first byte is 1.
            return not greeting or connection.recv(1) == b"\x01"
    except OSError:
        return False

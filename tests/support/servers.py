"""Servers of other people that tests start on loopback, kill, pause and start again."""

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

_READY_WITHIN_S = 30.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened at a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


class Server:
    """One process that keeps its command line, and so its ports and its data, for life."""

    def __init__(
        self, command: list[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        assert self._process is None, "it runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment
            )

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP; returns once all its threads stand still."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGCONT)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Until ``ready``; fails with what the server said if it ended instead."""
        ends_at = time.monotonic() + _READY_WITHIN_S
        while not ready():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > ends_at:
                raise AssertionError(f"not ready: {self._log.read_text()[-3000:]}")
            time.sleep(0.05)


class Servers(ABC):
    """Several that belong together, by number; a context manager runs them."""

    _servers: list[Server]

    def __enter__(self) -> Self:
        for server in self._servers:
            server.start()
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.kill()

    def __getitem__(self, member: int) -> Server:
        return self._servers[member]

    @abstractmethod
    def wait(self) -> None:
        """Until every running one serves."""

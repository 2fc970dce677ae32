"""One process of a product under test: started, watched, killed, stopped, started again.

It runs in a session of its own, so that what it started can be ended with it, and writes what it
says into a log beside its data.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.peers import process_tree

_STOP_TIMEOUT_S = 60.0
Alive = Callable[[], bool]


class Member:
    """A command and, while it runs, its process; a broker or what brokers rest on."""

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        wait: Callable[[Alive], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``wait`` returns once the process serves; it raises if that takes too long."""
        self.name = name
        self._command = command
        self._log = log
        self._wait = wait
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process whose tree is measured."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def start(self) -> None:
        """Begin; ``wait`` tells when it serves."""
        assert not self.alive(), f"{self.name} runs already"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment,
            )

    def wait(self) -> None:
        """Return once it serves."""
        self._wait(self.alive)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def cpu_seconds(self) -> float:
        """CPU time since the process was started."""
        return process_tree.cpu_seconds(self.pid) if self.alive() else 0.0

    def kill(self) -> None:
        """End it, and what it started, with no chance to tidy up."""
        if self._process is not None and self.alive():
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM, as an operator would."""
        if self._process is not None and self.alive():
            self._process.terminate()

    def stop(self) -> None:
        """SIGTERM; SIGKILL to its whole session if that is not obeyed."""
        self.ask_to_stop()
        if self._process is not None:
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def last_lines(self, count: int = 15) -> str:
        """The end of what it said."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-count:])

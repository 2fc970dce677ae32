"""A real broker in a process of its own, to be used, killed and started again.

``start`` returns once the broker is ready; ``kill`` is kill -9.  After the first start the
broker keeps its port, so that clients find it again.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

_READY = re.compile(r"ready: kafka (?P<kafka>\S+), http (?P<http>\S+),")
_READY_WITHIN_S = 30.0
_STOPPED_WITHIN_S = 30.0


class BrokerFailedError(Exception):
    """The broker ended, or was not ready in time; the message carries what it printed."""


class BrokerProcess:
    """One ``waystation serve`` on free ports of loopback."""

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Mapping[str, str] | None = None,
        volatile: bool = False,
        http: str = "none",
        wrapper: tuple[str, ...] = (),
        more_dirs: tuple[Path, ...] = (),
        module: str = "waystation.cli.main",
        listen: str = "127.0.0.1:0",
    ) -> None:
        """``volatile`` keeps unsynced writes in the process's memory, so that kill -9 is as
        bad as a power failure; ``wrapper`` is a command to run it under, such as strace;
        ``module`` is what to run instead of ``waystation``, given the same command line;
        ``listen`` says where, if it matters before it runs.
        """
        self.data_dir = data_dir
        self.options = dict(options or {})
        self.log_path = data_dir.parent / f"{data_dir.name}.broker.log"
        self.bootstrap = ""
        self.http = ""
        self._listen = listen
        self._http = http
        self._wrapper = wrapper
        self._more_dirs = more_dirs
        self._module = "waystation.testing.volatile" if volatile else module
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it was started, and has neither been ended nor ended by itself."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start and wait until it is ready."""
        assert self._process is None, "the broker is running already"
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._await_ready(self._process)
        return self

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Shut it down cleanly; the exit code."""
        return self._end(signal.SIGTERM)

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None, "no VmRSS"
        return int(found[1]) * 1024

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def _command(self) -> list[str]:
        command = [*self._wrapper, sys.executable, "-m", self._module, "serve"]
        command += ["--listen", self._listen, "--http", self._http]
        for directory in (self.data_dir, *self._more_dirs):
            command += ["--data-dir", str(directory)]
        for name, value in self.options.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _await_ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None, "stdout is a pipe"
        # The broker prints one line when it is ready, or ends; a watchdog ends one that hangs.
        watchdog = threading.Timer(_READY_WITHIN_S, process.kill)
        watchdog.start()
        try:
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        found = _READY.search(line)
        if found is None:
            process.kill()
            process.wait()
            self._process = None
            raise BrokerFailedError(f"not ready: {line!r}\n{self.log_path.read_text()[-4000:]}")
        self.bootstrap, self.http = found["kafka"], found["http"]
        self._listen = self.bootstrap

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, "the broker is not running"
        process.send_signal(how)
        try:
            return process.wait(_STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailedError(
                f"still running {_STOPPED_WITHIN_S} s after {how.name}\n"
                f"{self.log_path.read_text()[-4000:]}"
            ) from None
        finally:
            with contextlib.suppress(OSError):
                if process.stdout is not None:
                    process.stdout.close()

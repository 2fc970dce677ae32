"""Processes that outlive the command that started them, found again by a file.

1. A process is known by its number and the moment it was started: a number that the system gave
   to somebody else since, or before the machine was restarted, is never taken for ours.
2. The file is written by the new process itself, before it becomes the program.  However the
   command that starts it ends, nothing runs that no file tells of.
3. What it prints is appended to a log of its own.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from waystation.model.errors import WaystationError

_LOOK_EVERY_S = 0.05
_LAST_LINES = 15
# How a command of ours begins the line that says why it ends.
_REASON = "waystation: "


class NotStartedError(WaystationError):
    """A program in the background ended, or was not ready in time."""


class Background:
    """One program; ``NAME.pid`` says which process it is, ``NAME.log`` what it said."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._file = folder / f"{name}.pid"

    @property
    def pid(self) -> int | None:
        """The process, if it runs."""
        try:
            said = json.loads(self._file.read_text())
            pid, birth = int(said["pid"]), said["birth"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return pid if birth == birth_of(pid) else None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
        """Start it; where in the log what it says begins."""
        assert self.pid is None, f"{self.name} runs already"
        file = str(self._file)

        def say_who() -> None:
            _write_whole(file, json.dumps({"pid": os.getpid(), "birth": birth_of(os.getpid())}))

        with self.log.open("ab") as log:
            begins_at = log.tell()
            # The loader's own process group: Ctrl-C at the terminal is not meant for it.
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                start_new_session=True,
                preexec_fn=say_who,
            )
        return begins_at

    def wait_until(self, ready: Callable[[], bool], within_s: float, begins_at: int) -> None:
        """Until ``ready``; if it ends instead, what it said last is the error."""
        ends_at = time.monotonic() + within_s
        while not ready():
            _reap()
            if self.pid is None:
                raise NotStartedError(f"{self.name} has ended: {self._said(begins_at)}")
            if time.monotonic() > ends_at:
                raise NotStartedError(
                    f"{self.name} is not ready after {within_s:g} s: {self._said(begins_at)}. "
                    f"Its log is {self.log}"
                )
            time.sleep(_LOOK_EVERY_S)

    def said(self, begins_at: int) -> str:
        """What it wrote into its log from there on."""
        with self.log.open("rb") as log:
            log.seek(begins_at)
            return log.read().decode(errors="replace")

    def signal(self, number: signal.Signals) -> bool:
        """Send it a signal; false if it does not run."""
        pid = self.pid
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def ended(self, within_s: float) -> bool:
        """Wait for its end; false if it still runs then."""
        ends_at = time.monotonic() + within_s
        while self.pid is not None:
            if time.monotonic() > ends_at:
                return False
            _reap()
            time.sleep(_LOOK_EVERY_S)
        self._file.unlink(missing_ok=True)
        return True

    def _said(self, begins_at: int) -> str:
        """Its last words; of one of ours only why it ended, without what it logged before."""
        lines = self.said(begins_at).strip().splitlines()[-_LAST_LINES:]
        reasons = [n for n, line in enumerate(lines) if line.startswith(_REASON)]
        if reasons:
            lines = [lines[reasons[0]].removeprefix(_REASON), *lines[reasons[0] + 1 :]]
        return "\n".join(lines) or f"it said nothing, see {self.log}"


def birth_of(pid: int) -> str | None:
    """When the process was started, so that no other ever has the same; ``None`` if none runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if sys.platform == "linux" else _asked(pid)
    # The second field is the program's name, which may hold anything; a parenthesis ends it.
    state, *fields = stat.rpartition(")")[2].split()
    if state == "Z":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[18]}"


def _asked(pid: int) -> str | None:
    """The same where there is no /proc."""
    asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    state, _, start = subprocess.run(
        asked, capture_output=True, text=True, check=False
    ).stdout.partition(" ")
    return None if not state or state.startswith("Z") else start.strip()


def _reap() -> None:
    """Let go of children of ours that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _write_whole(file: str, text: str) -> None:
    Path(f"{file}.tmp").write_text(text)
    Path(f"{file}.tmp").replace(file)

"""Programs that were started in a session of their own, and how they end with all they started."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["end_session", "is_alive"]


def end_session(leader: "subprocess.Popen[bytes]") -> None:
    """Kill -9 whoever belongs to the session of ``leader``."""
    while members := [*_members(leader.pid)]:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        leader.poll()


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    return _state_and_session(pid)[0] not in "ZX"


def _members(leader: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        state, session = _state_and_session(int(folder.name))
        if session == leader and state not in "ZX":
            yield int(folder.name)


def _state_and_session(pid: int) -> tuple[str, int]:
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return told[0], int(told[3])
    return "X", 0

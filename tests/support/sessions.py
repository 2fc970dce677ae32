"""Programs that were started in a session of their own, and how they end with all they started."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["descendants", "end_session", "is_alive", "is_stopped", "parent_of"]


def end_session(leader: "subprocess.Popen[bytes]") -> None:
    """Kill -9 whoever belongs to the session of ``leader``."""
    while members := [*_members(leader.pid)]:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        leader.poll()


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    return _of(pid).state not in "ZX"


def is_stopped(pid: int) -> bool:
    """Whether somebody has sent it ``kill -STOP``."""
    return _of(pid).state == "T"


def parent_of(pid: int) -> int:
    """Who has started it, or looks after it since that one ended."""
    return _of(pid).parent


def descendants(ancestor: int) -> list[int]:
    """All that a process has started, and what those have started, parents first."""
    parents = {pid: found.parent for pid, found in _everybody()}
    found = [ancestor]
    for parent in found:  # it grows while we go
        found += [pid for pid, its_parent in parents.items() if its_parent == parent]
    return found[1:]


class _Process(NamedTuple):
    state: str
    parent: int
    session: int


def _members(leader: int) -> Iterator[int]:
    return (pid for pid, found in _everybody() if found.session == leader)


def _everybody() -> Iterator[tuple[int, _Process]]:
    for folder in Path("/proc").glob("[0-9]*"):
        found = _of(int(folder.name))
        if found.state not in "ZX":
            yield int(folder.name), found


def _of(pid: int) -> _Process:
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return _Process(told[0], int(told[1]), int(told[3]))
    return _Process("X", 0, 0)

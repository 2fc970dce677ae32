"""Reads a system-call trace and says whether replies waited for the disk.

The trace is what ``strace -f -y`` writes: one line per call, or two when another thread's call
came in between (``<unfinished ...>`` and ``resumed``).  Lines stand in the order in which things
happened, because strace stops a thread at the entry and at the exit of every call.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

TRACE = (
    "-f",
    "-y",
    "-s",
    "0",
    "-e",
    "trace=fdatasync,pwrite64,pwritev,sendto,sendmsg,write,writev",
)
"""The options of strace that make such a trace."""

_WRITES = ("pwrite64", "pwritev")
_REPLIES = ("sendto", "sendmsg", "write", "writev")

_CALL = re.compile(r"^(?P<thread>\d+) +(?P<name>\w+)\((?P<fd>\d+)<(?P<path>[^>]*)>(?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<thread>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_FAILED = re.compile(r"= -1 ")


class Event(NamedTuple):
    """A call began or returned."""

    thread: str
    name: str
    path: str
    returned: bool
    failed: bool


class Findings(NamedTuple):
    """What a trace shows."""

    replies: int
    """Replies to clients that followed a write to a log."""
    unsynced: list[str]
    """Logs that were written to and not synced when a reply left."""
    syncs: int
    """Syncs of logs that returned."""


def events(lines: Iterable[str]) -> Iterator[Event]:
    """The calls of a trace, each as its beginning and its return."""
    pending: dict[str, Event] = {}
    for line in lines:
        if found := _CALL.match(line):
            thread, name, _, path, rest = found.groups()
            began = Event(thread, name, path, returned=False, failed=False)
            yield began
            if "<unfinished" in rest:
                pending[thread] = began
            else:
                yield began._replace(returned=True, failed=bool(_FAILED.search(rest)))
        elif found := _RESUMED.match(line):
            thread, name, rest = found.groups()
            resumed = pending.pop(thread, None)
            if resumed is not None and resumed.name == name:
                yield resumed._replace(returned=True, failed=bool(_FAILED.search(rest)))


def examine(lines: Iterable[str]) -> Findings:
    """Hold every reply against what was on disk when it left."""
    written: dict[str, int] = {}
    synced: dict[str, int] = {}
    covers: dict[str, int] = {}
    replies = syncs = answered = 0
    unsynced: list[str] = []
    for event in events(lines):
        is_log = event.path.endswith(".log")
        if event.name in _WRITES and is_log and not event.returned:
            written[event.path] = written.get(event.path, 0) + 1
        elif event.name == "fdatasync" and is_log and not event.returned:
            # What is written after the sync began is not covered by it.
            covers[event.thread] = written.get(event.path, 0)
        elif event.name == "fdatasync" and is_log and not event.failed:
            syncs += 1
            synced[event.path] = max(synced.get(event.path, 0), covers.pop(event.thread))
        elif event.name in _REPLIES and _is_socket(event.path) and not event.returned:
            behind = [path for path, count in written.items() if synced.get(path, 0) < count]
            unsynced += behind
            if sum(written.values()) > answered:
                answered = sum(written.values())
                replies += 1
    return Findings(replies, unsynced, syncs)


def _is_socket(path: str) -> bool:
    return path.startswith(("socket:", "TCP"))


def read_trace(path: Path) -> list[str]:
    """The lines of a trace whose process has ended."""
    return path.read_text(errors="replace").splitlines()

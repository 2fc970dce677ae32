"""Reads a system-call trace and says whether replies waited for the disk.

The trace is what ``strace -f -y`` writes: one line per call, or two when another thread's call
came in between (``<unfinished ...>`` and ``resumed``).  Lines stand in the order in which things
happened, because strace stops a thread at the entry and at the exit of every call.

Bytes of a log are safe when a sync of the log returned that began after they were written; or
when as many bytes were written to the journal after them, and a sync of the journal returned
that began after that.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

TRACED = "trace=fdatasync,pwrite64,pwritev,sendto,sendmsg,write,writev"
TRACE = ("-f", "-y", "-s", "0", "-e", TRACED)
"""The options of strace that make such a trace."""

_WRITES = ("pwrite64", "pwritev")
_REPLIES = ("sendto", "sendmsg", "write", "writev")

_CALL = re.compile(r"^(?P<thread>\d+) +(?P<name>\w+)\((?P<fd>\d+)<(?P<path>[^>]*)>(?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<thread>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_RETURNED = re.compile(r"= (-?\d+)(?: [A-Z(].*)?$")


class Event(NamedTuple):
    """A call began, or returned with a value."""

    thread: str
    name: str
    path: str
    value: int | None


class Findings(NamedTuple):
    """What a trace shows."""

    replies: int
    """Replies to clients that followed a write to a log."""
    unsafe: list[str]
    """Logs with bytes that were not safe when such a reply left."""
    log_syncs: int
    journal_syncs: int


def events(lines: Iterable[str]) -> Iterator[Event]:
    """The calls of a trace, each as its beginning and its return."""
    pending: dict[str, Event] = {}
    for line in lines:
        if found := _CALL.match(line):
            thread, name, _, path, rest = found.groups()
            yield Event(thread, name, path, None)
            pending[thread] = Event(thread, name, path, None)
            if "<unfinished" not in rest:
                yield pending.pop(thread)._replace(value=_value(rest))
        elif found := _RESUMED.match(line):
            resumed = pending.pop(found["thread"], None)
            if resumed is not None and resumed.name == found["name"]:
                yield resumed._replace(value=_value(found["rest"]))


def _value(rest: str) -> int:
    found = _RETURNED.search(rest)
    return int(found[1]) if found else -1


def examine(lines: Iterable[str]) -> Findings:
    """Hold every reply against what was safe when it left."""
    disk = _Disk()
    replies, answered = 0, 0
    unsafe: list[str] = []
    for event in events(lines):
        if event.name in _REPLIES and event.value is None and _is_socket(event.path):
            written = sum(disk.written.values())
            if written > answered:
                answered, replies = written, replies + 1
                unsafe += disk.unsafe()
        else:
            disk.note(event)
    return Findings(replies, unsafe, disk.log_syncs, disk.journal_syncs)


class _Disk:
    """How many bytes of each log were written, and how many of them are safe."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}
        self.log_syncs = self.journal_syncs = 0
        self._safe: dict[str, int] = {}
        self._journaled: dict[str, int] = {}
        self._covered: dict[str, dict[str, int]] = {}

    def unsafe(self) -> list[str]:
        return [path for path, size in self.written.items() if self._safe.get(path, 0) < size]

    def note(self, event: Event) -> None:
        is_log, is_journal = event.path.endswith(".log"), event.path.endswith(".wal")
        if event.name in _WRITES and event.value is not None and event.value > 0:
            if is_log:
                self.written[event.path] = self.written.get(event.path, 0) + event.value
            elif is_journal and event.value >= self._not_journaled():
                self._journaled = dict(self.written)
        elif event.name == "fdatasync" and (is_log or is_journal):
            if event.value is None:
                # What is written after the sync began is not covered by it.
                now = {event.path: self.written.get(event.path, 0)} if is_log else self._journaled
                self._covered[event.thread] = dict(now)
            elif event.value == 0:
                self.log_syncs += is_log
                self.journal_syncs += is_journal
                for path, size in self._covered.pop(event.thread).items():
                    self._safe[path] = max(self._safe.get(path, 0), size)

    def _not_journaled(self) -> int:
        """Bytes that a write to the journal must at least have to hold all that is not safe."""
        known = self._journaled
        return sum(
            max(size - max(known.get(path, 0), self._safe.get(path, 0)), 0)
            for path, size in self.written.items()
        )


def _is_socket(path: str) -> bool:
    return path.startswith(("socket:", "TCP"))


def read_trace(path: Path) -> list[str]:
    """The lines of a trace whose process has ended."""
    return path.read_text(errors="replace").splitlines()

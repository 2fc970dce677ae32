"""What a broker costs its machine, read from ``/proc``.

A broker may be several processes, so every figure is a sum over the process and its descendants.
CPU seconds also count children that have ended and been waited for.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def cpu_seconds(pid: int) -> float:
    """User and system time spent so far, in seconds."""
    return sum(_ticks(member) for member in descendants(pid)) / _TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Resident memory now, in MB of 10^6 bytes."""
    return sum(_status_kb(member, "VmRSS") for member in descendants(pid)) * 1024 / 1e6


def peak_rss_mb(pid: int) -> float:
    """The highest resident memory of each process so far, summed, in MB."""
    return sum(_status_kb(member, "VmHWM") for member in descendants(pid)) * 1024 / 1e6


def descendants(pid: int) -> list[int]:
    """The process itself and everything it started that still runs."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := stat_fields(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:  # grows while we walk it: parents before their children
        found.extend(children.get(member, ()))
    return found


def stat_fields(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the command name; empty once the process is gone.

    The name is in parentheses and may hold spaces and parentheses itself, so we cut at the last.
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def _ticks(pid: int) -> int:
    # utime, stime, cutime, cstime are fields 14-17 of proc(5); the list starts at field 3.
    return sum(int(ticks) for ticks in stat_fields(pid)[11:15])


def _status_kb(pid: int, name: str) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)

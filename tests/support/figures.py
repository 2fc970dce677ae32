"""Measured figures, printed so that ``tools/soak.py`` finds them for its report."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CPU_CLOCK = 2
"""Linux gives every process a clock of its own, whose number is made of its id and this."""


def figure(text: str) -> None:
    """One line of the report."""
    print(f"figure: {text}")  # noqa: T201, pytest keeps it for the report


class Stopwatch:
    """How long something took, once it is over."""

    seconds = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time the block."""
    watch, began = Stopwatch(), time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - began


def megabytes(nbytes: float) -> str:
    """A size for people."""
    return f"{nbytes / 1e6:.0f} MB"


def bytes_read(pid: int) -> int:
    """What a process has asked the kernel to read so far, from disk, cache or socket."""
    facts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(facts["rchar"])


def cpu_seconds(pid: int) -> float:
    """How long all threads of a process have been running, to the microsecond."""
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


def open_descriptors(pid: int) -> int:
    """How many files and sockets a process holds."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def disk_usage(path: Path) -> int:
    """What the files under ``path`` take on disk, as ``du`` counts it."""
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def allow_many_descriptors() -> None:
    """Let this process, and those it starts, have as many files as the machine allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

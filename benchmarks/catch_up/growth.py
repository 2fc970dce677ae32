"""How fast a replica grows: its log's files are looked at twice a second.

The files say what was really copied, whatever brokers claim; indexes are left out, since some
brokers make them as large as they may become.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_LOOK_EVERY_S = 0.5


class Sample(NamedTuple):
    """How much there was at one moment."""

    at_s: float
    nbytes: int


def mean_rate(samples: Sequence[Sample]) -> float:
    """Bytes a second while it grew: from the last look before to the first look after."""
    growing = _growing(samples)
    if len(growing) < 2:
        return 0.0
    first, last = growing[0], growing[-1]
    return (last.nbytes - first.nbytes) / (last.at_s - first.at_s)


def fastest_rate(samples: Sequence[Sample], window_s: float) -> float:
    """The highest mean over any stretch of at least ``window_s``; 0 if there is none."""
    best, begin = 0.0, 0
    for end, last in enumerate(samples):
        while begin < end and last.at_s - samples[begin + 1].at_s >= window_s:
            begin += 1
        span_s = last.at_s - samples[begin].at_s
        if span_s >= window_s:
            best = max(best, (last.nbytes - samples[begin].nbytes) / span_s)
    return best


def _growing(samples: Sequence[Sample]) -> Sequence[Sample]:
    moves = [n for n in range(1, len(samples)) if samples[n].nbytes > samples[n - 1].nbytes]
    return samples[moves[0] - 1 : moves[-1] + 1] if moves else ()


def log_bytes(directory: Path, node: int, topic: str) -> int:
    """What the logs of a topic take on one node of a cluster that lives in ``directory``."""
    total = 0
    for home in directory.glob(f"*-{node}"):
        for log in home.rglob(f"{topic}-*/*.log"):
            try:
                total += log.stat().st_size
            except FileNotFoundError:  # a partition that has just moved away
                continue
    return total


class Growth:
    """Watches one topic on one node for as long as the block lasts."""

    def __init__(self, directory: Path, node: int, topic: str) -> None:
        self._where = (directory, node, topic)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.samples: list[Sample] = []

    def __enter__(self) -> Growth:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        self.samples.append(Sample(time.monotonic(), log_bytes(*self._where)))

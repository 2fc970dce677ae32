"""How far a streaming query is, shown while it runs.

A person at a terminal sees one line that changes; a script that asked for JSON gets one document
per batch on standard output; a log file gets one line per batch.  Ctrl-C and SIGTERM let the
batch at hand finish, a second one stops at once: either way nothing is lost or doubled, the
first merely saves the next start some work.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from waystation.pipelines.failures import JobFailedError, readable

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchReport", "Interrupts", "follow", "interrupts", "report_of", "say", "showing"]

_GLANCE_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class BatchReport(NamedTuple):
    """What one micro-batch did."""

    at: str
    batch: int
    rows: int
    batch_ms: int
    lag: int | None

    @property
    def rows_per_s(self) -> float:
        """Rows per second of the batch's own time."""
        return self.rows * 1_000 / self.batch_ms if self.batch_ms else 0.0

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {**self._asdict(), "rows_per_s": round(self.rows_per_s, 1)}

    def as_line(self) -> str:
        """For people."""
        behind = "" if self.lag is None else f", {self.lag:,} to go"
        return (
            f"batch {self.batch}: {self.rows:,} rows in {self.batch_ms / 1_000:.1f} s, "
            f"{self.rows_per_s:,.0f} rows/s{behind}"
        )


def report_of(progress: Mapping[str, Any]) -> BatchReport:
    """What Spark's own report says, in our words."""
    return BatchReport(
        at=progress["timestamp"],
        batch=progress["batchId"],
        rows=progress["numInputRows"],
        batch_ms=progress["durationMs"].get("triggerExecution", progress.get("batchDuration", 0)),
        lag=_lag(progress.get("sources") or ()),
    )


def follow(query: "StreamingQuery", *, json_output: bool) -> None:
    """Show the query's progress until it ends; raise ``JobFailedError`` if it fails."""
    with interrupts() as interrupted, showing(json_output=json_output) as tell:
        seen = _Seen()
        while not _ended(query, _GLANCE_S):
            seen.tell_new(query, tell)
            if interrupted.is_set():
                _stop_after_this_batch(query, interrupted)
        seen.tell_new(query, tell)
    if not json_output:
        say(seen.summary())


class _Seen:
    """Which batches were told, and what they come to."""

    def __init__(self) -> None:
        self._last = -1
        self._rows = self._batches = 0
        self._started = time.monotonic()

    def tell_new(self, query: "StreamingQuery", tell: Callable[[BatchReport], None]) -> None:
        for progress in query.recentProgress:
            report = report_of(progress)
            # A trigger that found nothing repeats the id of the batch to come.
            if report.batch <= self._last or not report.rows:
                continue
            self._last = report.batch
            self._rows += report.rows
            self._batches += 1
            tell(report)

    def summary(self) -> str:
        took_s = time.monotonic() - self._started
        batches = "1 batch" if self._batches == 1 else f"{self._batches} batches"
        return f"ended: {self._rows:,} rows in {batches}, {took_s:.1f} s"


def _ended(query: "StreamingQuery", within_s: float) -> bool:
    """Whether the query ends within that time."""
    try:
        return bool(query.awaitTermination(within_s))  # type: ignore[arg-type]  # takes parts too
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise JobFailedError(readable(error)) from error


def _stop_after_this_batch(query: "StreamingQuery", interrupted: "Interrupts") -> None:
    say("stopping after this batch; once more to stop now")
    while query.isActive and query.status["isTriggerActive"] and not interrupted.is_urgent():
        time.sleep(0.05)
    query.stop()


# --- interrupts -------------------------------------------------------------------------------


class Interrupts:
    """How often somebody asked us to stop; ``raising``, the second time ends whatever runs."""

    def __init__(self, *, raising: bool = False) -> None:
        self._count = 0
        self._raising = raising

    def note(self, *_: object) -> None:
        """Once more."""
        self._count += 1
        if self._raising and self.is_urgent():
            raise KeyboardInterrupt

    def is_set(self) -> bool:
        """Whether to stop after the batch at hand."""
        return self._count > 0

    def is_urgent(self) -> bool:
        """Whether to stop at once."""
        return self._count > 1


@contextmanager
def interrupts(*, raising: bool = False) -> Iterator[Interrupts]:
    """Count signals instead of being ended by them; Spark's own handler would cancel the batch.

    Only the main thread may; elsewhere, as in a notebook's cell, signals go where they went.
    """
    found = Interrupts(raising=raising)
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {number: signal.signal(number, found.note) for number in _SIGNALS}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- who is told ------------------------------------------------------------------------------


def showing(*, json_output: bool) -> AbstractContextManager[Callable[[BatchReport], None]]:
    """Gives what is to be told of each batch."""
    return _shown_as_json() if json_output else _shown_to_people()


@contextmanager
def _shown_as_json() -> Iterator[Callable[[BatchReport], None]]:
    def tell(report: BatchReport) -> None:
        sys.stdout.write(json.dumps(report.as_json()) + "\n")
        sys.stdout.flush()

    yield tell


@contextmanager
def _shown_to_people() -> Iterator[Callable[[BatchReport], None]]:
    if not sys.stderr.isatty():
        yield lambda report: say(report.as_line())
        return
    from rich.console import Console

    with Console(file=sys.stderr).status("waiting for the first batch") as status:
        yield lambda report: status.update(report.as_line())


def say(line: str) -> None:
    """To people, beside what a script reads."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


# --- lag --------------------------------------------------------------------------------------


def _lag(sources: "list[Mapping[str, Any]] | tuple[()]") -> int | None:
    """How many offsets lie between what was read and what there is; ``None`` if nobody knows."""
    known = [lag for one in sources if (lag := _lag_of(one)) is not None]
    return sum(known) if known else None


def _lag_of(source: Mapping[str, Any]) -> int | None:
    read, there = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if read is None or there is None:
        return None
    return sum(max(0, end - read.get(where, end)) for where, end in there.items())


def _offsets(said: object) -> dict[tuple[str, str], int] | None:
    """``{"topic": {"0": 123}}``, as a text or as what it means."""
    try:
        found: Any = json.loads(said) if isinstance(said, str) else said
        return {
            (topic, partition): int(offset)
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }
    except (TypeError, ValueError, AttributeError):
        return None

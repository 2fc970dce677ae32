"""Syncs logs to disk, side by side, and many appends at a time.

1. At most one sync of a log runs at a time.  Appends made while it runs are covered by one more
   sync after it, however many they are: that is the group commit.
   A log may rest between its syncs (``linger_s``), so that more appends share the next.
2. Outcomes are told on the loop's thread, in the order in which the syncs of a log ended.
3. A failed sync is told once and never repeated: after it nobody knows what the disk holds.

Why a pool of threads and not a journal: docs/decisions/0002-durability.md.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Protocol

from waystation.model.errors import StorageError
from waystation.model.offsets import Offset
from waystation.storage.log import FlushTicket, Log

Done = Callable[[Log, Offset | StorageError], None]
Post = Callable[[Callable[[], None]], object]
Defer = Callable[[float, Callable[[], None]], object]


class Stopwatch(Protocol):
    """Takes note of how long a sync took."""

    def observe(self, seconds: float, /) -> None: ...


class _Job:
    """One log being synced."""

    __slots__ = ("again", "done", "error", "linger_s", "log", "seconds", "ticket")

    def __init__(self, log: Log, ticket: FlushTicket, done: Done, linger_s: float) -> None:
        self.log = log
        self.ticket = ticket
        self.done = done
        self.linger_s = linger_s
        self.again = False
        self.error: StorageError | None = None
        self.seconds = 0.0


class _Rest:
    """A log that was just synced and is not to be synced again yet."""

    __slots__ = ("linger_s", "wanted")

    def __init__(self, linger_s: float, wanted: Done | None) -> None:
        """``wanted`` is who asked for another sync meanwhile."""
        self.linger_s = linger_s
        self.wanted = wanted


class Flusher:
    """A pool of threads; every method belongs to the loop's thread."""

    def __init__(
        self,
        threads: int,
        post: Post,
        stopwatch: Stopwatch | None = None,
        defer: Defer | None = None,
    ) -> None:
        """Without ``defer`` no log rests."""
        self._post = post
        self._defer = defer
        self._stopwatch = stopwatch
        self._resting: dict[Log, _Rest] = {}
        self._work: SimpleQueue[_Job | None] = SimpleQueue()
        self._running: dict[Log, _Job] = {}
        self._ended: list[_Job] = []
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._sync, name=f"flusher-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def request(self, log: Log, done: Done, linger_s: float = 0.0) -> None:
        """Sync ``log``; ``done`` is told the offset up to which it is safe, or what failed.

        The sync begins no sooner than ``linger_s`` after the one before it ended.

        HOT: once per append with ``durability=disk``.
        """
        running = self._running.get(log)
        if running is not None:
            running.again = True
            return
        rest = self._resting.get(log)
        if rest is not None:
            if linger_s > 0:
                rest.wanted = done
                return
            del self._resting[log]
        if log.directory.offline is not None:
            done(log, StorageError(f"{log.path} is offline: {log.directory.offline}"))
            return
        ticket = log.begin_flush()
        if ticket is None:
            done(log, log.flushed_end)
            return
        job = _Job(log, ticket, done, linger_s)
        self._running[log] = job
        self._work.put(job)

    def close(self) -> None:
        """End the threads once what they were given is done; its outcome is told here."""
        self._defer = None
        for log, rest in list(self._resting.items()):
            self._rested(log, rest)
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
        self._collect()

    def _sync(self) -> None:
        while (job := self._work.get()) is not None:
            started = time.perf_counter()
            try:
                job.ticket.sync()
            except OSError as error:
                job.error = StorageError(f"cannot sync {job.log.path}: {error.strerror or error}")
            job.seconds = time.perf_counter() - started
            with self._lock:
                self._ended.append(job)
                first = len(self._ended) == 1
            # One wake-up serves all syncs that end before the loop gets to look.
            if first:
                self._post(self._collect)
            # While this thread waits for more it must not hold files open that may be deleted.
            del job

    def _collect(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for job in ended:
            del self._running[job.log]
            if self._stopwatch is not None:
                self._stopwatch.observe(job.seconds)
            self._tell(job)

    def _tell(self, job: _Job) -> None:
        log, error = job.log, job.error
        if error is not None:
            log.fail(error)
        elif log.directory.offline is not None:
            error = StorageError(f"{log.path} is offline: {log.directory.offline}")
        if error is not None:
            job.done(log, error)
            return
        log.finish_flush(job.ticket)
        again = job.again and log.flushed_end < log.log_end
        if job.linger_s > 0 and self._defer is not None:
            rest = self._resting[log] = _Rest(job.linger_s, job.done if again else None)
            self._defer(job.linger_s, partial(self._rested, log, rest))
        elif again:
            self._again(log, job.done)
        job.done(log, log.flushed_end)

    def _rested(self, log: Log, rest: _Rest) -> None:
        if self._resting.get(log) is rest:
            del self._resting[log]
            if rest.wanted is not None:
                self._again(log, rest.wanted, rest.linger_s)

    def _again(self, log: Log, done: Done, linger_s: float = 0.0) -> None:
        # A deleted log has no files, and its name may already be another's.
        if log.directory.holds(log):
            self.request(log, done, linger_s)

"""Syncs logs to disk, side by side, and many appends at a time.

1. At most one sync of a log runs at a time.  Appends made while it runs are covered by one more
   sync after it, however many they are: that is the group commit.
2. Outcomes are told on the loop's thread, in the order in which the syncs of a log ended.
3. A failed sync is told once and never repeated: after it nobody knows what the disk holds.

Why a pool of threads and not a journal: docs/decisions/0002-durability.md.
"""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from waystation.model.errors import StorageError
from waystation.model.offsets import Offset
from waystation.storage.log import FlushTicket, Log

Done = Callable[[Log, Offset | StorageError], None]
Post = Callable[[Callable[[], None]], object]


class Stopwatch(Protocol):
    """Takes note of how long a sync took."""

    def observe(self, seconds: float, /) -> None: ...


class _Job:
    """One log being synced."""

    __slots__ = ("again", "done", "error", "log", "seconds", "ticket")

    def __init__(self, log: Log, ticket: FlushTicket, done: Done) -> None:
        self.log = log
        self.ticket = ticket
        self.done = done
        self.again = False
        self.error: StorageError | None = None
        self.seconds = 0.0


class Flusher:
    """A pool of threads; every method belongs to the loop's thread."""

    def __init__(self, threads: int, post: Post, stopwatch: Stopwatch | None = None) -> None:
        self._post = post
        self._stopwatch = stopwatch
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

    def request(self, log: Log, done: Done) -> None:
        """Sync ``log``; ``done`` is told the offset up to which it is safe, or what failed.

        HOT: once per append with ``durability=disk``.
        """
        running = self._running.get(log)
        if running is not None:
            running.again = True
            return
        if log.directory.offline is not None:
            done(log, StorageError(f"{log.path} is offline: {log.directory.offline}"))
            return
        ticket = log.begin_flush()
        if ticket is None:
            done(log, log.flushed_end)
            return
        job = _Job(log, ticket, done)
        self._running[log] = job
        self._work.put(job)

    def close(self) -> None:
        """End the threads once what they were given is done; its outcome is told here."""
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
        # A deleted log has no files, and its name may already be another's.
        if job.again and log.flushed_end < log.log_end and log.directory.holds(log):
            self.request(log, job.done)
        job.done(log, log.flushed_end)

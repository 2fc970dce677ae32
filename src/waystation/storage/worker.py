"""A thread that does one thing after the other."""

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Worker:
    """Runs what it is given, in order; the thread begins with the first.

    What comes after ``close`` is left undone: whoever waits for it is not told that it was done.
    """

    __slots__ = ("_closed", "_name", "_thread", "_work")

    def __init__(self, name: str) -> None:
        self._name = name
        self._closed = False
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Run ``work`` after everything given before it."""
        if self._closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._work.put(work)

    def close(self) -> None:
        """Wait until all is done, and end."""
        self._closed = True
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # What it held must not stay open until there is more to do.

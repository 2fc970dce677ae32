"""A thread that lets the disk begin with bytes before anyone waits for them.

With ``durability=memory`` nobody syncs for seconds.  The kernel would let dirty pages pile up and
then make a writer wait, which is the loop.  The hint may block as well, so it has a thread; the
thread is there from the first large write on.
"""

from queue import SimpleQueue
from threading import Thread

from waystation.storage.disk import DiskFile


class Writeback:
    """Takes hints for one data directory."""

    __slots__ = ("_thread", "_work")

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[DiskFile, int, int] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self, file: DiskFile, position: int, nbytes: int) -> None:
        """Let the disk begin with ``nbytes`` at ``position``, soon."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="writeback", daemon=True)
            self._thread.start()
        self._work.put((file, position, nbytes))

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (hint := self._work.get()) is not None:
            file, position, nbytes = hint
            file.start_writeback(position, nbytes)
            del file, hint

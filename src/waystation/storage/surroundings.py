"""What is around a log: where it lies, what it begins with, and what it answers.

``log.py`` is written against these alone; ``directory.py`` is the home of real ones.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from waystation.model.offsets import Millis, Offset
from waystation.replication.epochs import LeaderEpochs
from waystation.storage.disk import Disk, DiskFile
from waystation.storage.once_files import OnceFiles
from waystation.storage.once_window import OnceWindow
from waystation.storage.open_files import OpenFiles
from waystation.storage.producer_state import ProducerStates
from waystation.storage.reserve import Reserve
from waystation.storage.segment import Segment

if TYPE_CHECKING:
    from waystation.storage.log import Log

__all__ = ["Appended", "Home", "Opened", "Pending"]


class Home(Protocol):
    """The data directory a log lies in, as far as the log needs it."""

    path: Path
    disk: Disk
    files: OpenFiles
    offline: str | None
    reserve: Reserve
    producer_expiration_ms: int

    def fail(self, reason: str) -> None:
        """Take everything in the directory offline."""
        ...

    def write_back(self, file: DiskFile, position: int, nbytes: int) -> None:
        """Let the disk begin with bytes that nobody waits for yet."""
        ...

    def holds(self, log: "Log") -> bool:
        """Whether ``log`` is one of the directory's, and not deleted meanwhile."""
        ...

    def disown(self, log: "Log") -> None:
        """Do nothing more for ``log``, which is about to be deleted."""
        ...

    def delete_log(self, log: "Log") -> None:
        """Remove a log with all its records."""
        ...

    def drop_files(self, log: "Log", segment: Segment, now: Millis) -> None:
        """Rename the files of a segment that the log needs no more, and remove them later."""
        ...

    def write_clean_ends(self) -> None:
        """Write down how far each log was compacted.  Any thread."""
        ...

    def plan_log_starts(self) -> Callable[[], None]:
        """What writes down where logs start, to be run by a thread."""
        ...

    def check_start_written(self, log: "Log", start: Offset) -> None:
        """Raise if a crash could let ``log`` begin before ``start`` again."""
        ...

    def void_journal(self, log: "Log", offset: Offset) -> None:
        """See to it that nothing of ``log`` from ``offset`` on comes back from the journal."""
        ...

    def write_marks(self, log: "Log") -> None:
        """Write down at once where ``log`` begins, and where recovery begins with it."""
        ...


class Opened(NamedTuple):
    """What recovery found of a log, or what a new one begins with."""

    segments: list[Segment]
    log_start: Offset
    log_end: Offset
    recovery_point: Offset
    epochs: LeaderEpochs
    epochs_changed: bool
    """Whether they are not what their checkpoint says."""
    producers: ProducerStates
    snapshots: list[Offset]
    damage: list[str]
    tail_bytes: int
    """What lies behind the recovery point."""
    retired: list[Segment]
    """Segments that end before the log's start and wait to be dropped."""
    clean_end: Offset
    """The end of what was compacted."""
    once: OnceWindow
    once_files: OnceFiles


class Pending(Protocol):
    """A compacted segment that is on its way into the log."""

    def finish(self) -> None:
        """Bring it there now, for good."""
        ...


class Appended(NamedTuple):
    """Where a batch went; ``duplicate`` if it went there before."""

    base_offset: Offset
    last_offset: Offset
    append_time: Millis
    duplicate: bool = False

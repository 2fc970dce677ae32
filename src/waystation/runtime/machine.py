"""What a host needs of a machine and of its log; nothing here knows what either is for.

A machine is pure: it decides on events and on time, and changes what must survive only by
applying records.  Its log keeps those records in order and says how far they are committed.
``host.py`` brings the two together.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from waystation.model.errors import WaystationError
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis, Offset

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

OnCommit = Callable[[WaystationError | None], None]
"""Told ``None`` once a prefix of the log is committed, or the error that came first."""


class Machine(Protocol[R]):
    """A state that a log rebuilds; events are methods of its own, called by ``decide``."""

    def apply(self, record: R) -> None:
        """Change what survives a restart: live, and when the log is replayed."""
        ...

    def loaded(self, now: Millis) -> Outcome[R]:
        """Replay is over: start the clocks of whatever it brought back."""
        ...

    def next_deadline(self) -> Millis | None:
        """The earliest moment at which ``tick`` has something to do."""
        ...

    def tick(self, now: Millis) -> Outcome[R]:
        """Do what is due."""
        ...

    def abandon(self) -> list[Waiter]:
        """Everyone who waits inside; the machine is not used afterwards."""
        ...


class MachineLog(Protocol[R_contra]):
    """Where a machine's records go."""

    def append(self, records: Sequence[R_contra]) -> Offset:
        """Add records, all of them or none, and say where the log ends now; may raise."""
        ...

    @property
    def committed(self) -> Offset:
        """The end of what no failure takes back."""
        ...

    def when_committed(self, end: Offset, told: OnCommit) -> bool:
        """True if everything before ``end`` is committed; otherwise ``told`` is called later."""
        ...

"""Which replicas hold everything that was ever acknowledged.

The set that counts is the one written in the coordination store.  A leader that wants another
set proposes it by compare-and-set, and until the answer is known either set may be the written
one.  So, while a proposal is unanswered:

1. the high watermark counts the union of both, so that nothing commits which a member of
   either set lacks;
2. ``min.insync.replicas`` is held against the smaller, so that nothing is acknowledged that
   too few replicas hold.
"""

from dataclasses import dataclass

from waystation.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class InSync:
    """The written set, and the proposed one while its answer is awaited; in stored order."""

    written: tuple[NodeId, ...]
    proposed: tuple[NodeId, ...] | None = None

    @property
    def counted(self) -> tuple[NodeId, ...]:
        """Whose ends the high watermark waits for."""
        return tuple(dict.fromkeys(self.written + (self.proposed or ())))

    @property
    def size(self) -> int:
        """How many replicas are sure to be in sync, whatever the store answers."""
        return len(
            self.written if self.proposed is None else min(self.written, self.proposed, key=len)
        )

    def proposing(self, members: tuple[NodeId, ...]) -> "InSync":
        """The set once ``members`` has been sent to the store."""
        return InSync(self.written, members)

    def settled(self, members: tuple[NodeId, ...]) -> "InSync":
        """The set once the store has been read again, whether or not the proposal won."""
        return InSync(members)

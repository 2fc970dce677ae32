"""Which records of a companion's log are still needed, so that what waits long pins nothing else.

Cleaning rewrites segments and leaves out what was delivered or cancelled; offsets stay, so a
message due in a year costs its own bytes.  Needed are

1. messages that are pending, or in an open transaction, or of a batch that may be withdrawn;
2. of decisions, those that a replica may lack; those about the last batch of each lane; and the
   last about each message that waits for another time than its headers say, or comes again.

A bit per offset: a million records take 125 KB while they are looked through.
"""

from collections.abc import Iterable, Mapping

from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.scheduling.checkpoint import Recurring, Retiming
from waystation.scheduling.wheel import Due

__all__ = ["Keeping"]


class Keeping:
    """What of ``[start, end)`` must stay; everything else outside of it stays too."""

    __slots__ = ("_bits", "_decisions", "_everyone_has", "end", "start")

    def __init__(self, start: Offset, end: Offset, everyone_has: Offset) -> None:
        self.start, self.end = start, end
        self._bits = bytearray((max(end - start, 0) + 7) // 8)
        self._decisions: set[Offset] = set()
        self._everyone_has = everyone_has

    def keep(self, dues: Iterable[Due]) -> None:
        """These messages must stay."""
        start, end, bits = self.start, self.end, self._bits
        for _, offset in dues:
            if start <= offset < end:
                at = offset - start
                bits[at >> 3] |= 1 << (at & 7)

    def note(
        self,
        recurring: Mapping[Offset, Recurring],
        retimed: Mapping[Offset, Retiming],
        marks: Mapping[TopicPartition, tuple[Offset, ...]],
    ) -> None:
        """These decisions must stay, and the messages that they are about."""
        self.keep((one.due, offset) for offset, one in recurring.items())
        self.keep((one.due, offset) for offset, one in retimed.items())
        for one in recurring.values():
            self._decisions.update((one.decision, one.before))
        self._decisions.update(one.decision for one in retimed.values())
        for ats in marks.values():
            self._decisions.update(ats)

    @property
    def count(self) -> int:
        """How many messages must stay."""
        return int.from_bytes(self._bits, "little").bit_count()

    def keeps(self, offset: Offset, is_decision: bool) -> bool:
        """Whether the record at ``offset`` must stay."""
        if not self.start <= offset < self.end:
            return True
        if is_decision:
            return offset >= self._everyone_has or offset in self._decisions
        at = offset - self.start
        return bool(self._bits[at >> 3] & 1 << (at & 7))

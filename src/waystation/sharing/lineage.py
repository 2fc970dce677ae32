"""Which leaders wrote a log, and so how far their queues can be believed.

An election that loses messages gives their offsets to others.  What a queue knows of offsets that
its last leader had seen, and that another leader wrote anew, is about messages that are no more: as
with the logs of followers, everything counts up to where the histories part, and nothing after.
"""

from typing import Final, NamedTuple

from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import NO_OFFSET, Offset


class Lineage(NamedTuple):
    """A log as its leader has it: its end, and where each epoch that wrote in it begins."""

    log_end: Offset = NO_OFFSET
    starts: tuple[tuple[LeaderEpoch, Offset], ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether anything can be said."""
        return self.log_end != NO_OFFSET

    def parts_from(self, epoch: LeaderEpoch) -> Offset:
        """Where it has what the leader of ``epoch`` cannot have seen: the end, if nowhere."""
        return next((start for later, start in self.starts if later > epoch), self.log_end)


NO_LINEAGE: Final = Lineage()

"""Which dead letters of a partition were sent back: a queue that nobody consumes.

Sending back settles a message without a delivery, so the share coordinator remembers it as it
remembers any queue: as ranges, joined in any order, fenced by both epochs.  Who asks for the same
messages twice therefore sends them once.
"""

from typing import Final

from waystation.model.offsets import Offset
from waystation.sharing.backlog import FRESH, PASSED_OVER, SETTLED
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.states import Span

REDRIVE_GROUP: Final = "__redrive"
"""The name under which the share coordinator knows these queues; no client can join it."""

_QUEUE, _SHARE = QueueSettings(), ShareSettings()


class Redriven(SharePartition):
    """The dead letters of one partition, in one term of its leader."""

    __slots__ = ()

    def __init__(self, start: Offset) -> None:
        super().__init__(start, lambda: _QUEUE, lambda: _SHARE)

    def settle(self, offset: Offset) -> None:
        """A dead letter was sent back."""
        if offset < self.start:
            return
        backlog, end = self._backlog, Offset(offset + 1)
        if offset >= self.end:
            if offset > self.end:
                backlog.enter(offset, FRESH)
            backlog.enter(end, PASSED_OVER)
        else:
            cell = backlog.ranges.at(offset)
            if cell.state in SETTLED:
                return
            backlog.recolour(offset, end, cell, PASSED_OVER)
        self._changes.mark(offset, end)
        self._advance()

    def is_settled(self, offset: Offset) -> bool:
        """Whether a dead letter was sent back."""
        if not self.start <= offset < self.end:
            return offset < self.start
        return self._backlog.ranges.at(offset).state in SETTLED

    def settled_spans(self, first: Offset, limit: int) -> list[Span]:
        """The first ``limit`` stretches from ``first`` on that were sent back."""
        found = [Span(first, self.start)] if first < self.start else []
        for begin, end, cell in self._backlog.ranges.runs_from(max(first, self.start)):
            if len(found) >= limit:
                break
            if cell.state in SETTLED:
                if found and found[-1].end == begin:
                    found[-1] = Span(found[-1].first, end)
                else:
                    found.append(Span(begin, end))
        return found

"""Where the committed prefix of a partition ends.

The high watermark is the lowest end among the replicas that count, as their leader knows it.
For as long as one leader keeps its epoch:

1. the mark moves only to where every counted replica has reported to be;
2. the mark never moves back, whoever reports what, joins, leaves or restarts;
3. the mark stands still while fewer replicas count than are needed.

What an end means, on disk or in memory, is chosen in ``leader.py``; who counts is decided in
``in_sync.py``.  This file only takes the minimum.
"""

from collections.abc import Iterable

from waystation.model.ids import BrokerEpoch, NodeId
from waystation.model.offsets import Offset

_NOT_YET = Offset(0)


class HighWatermark:
    """Tracks the committed prefix from the leader's side; owns no log and no clock."""

    __slots__ = ("_ends", "_heard", "_stalled", "mark")

    def __init__(self, counted: Iterable[NodeId], mark: Offset) -> None:
        self._heard: dict[NodeId, tuple[BrokerEpoch, Offset]] = {}
        self._ends: dict[NodeId, Offset] = dict.fromkeys(counted, _NOT_YET)
        self._stalled = False
        self.mark = mark

    def record(self, node: NodeId, life: BrokerEpoch, end: Offset) -> bool:
        """Note that ``node`` holds everything before ``end``; true if the mark moved.

        A lower end than before is believed: a restart may have lost the tail, and a copy that was
        given up and made anew begins at the start, in the same incarnation.  The mark stays
        where it is; should the report be an old one, the next puts it right.  Only the dead are
        not believed.  Replicas that do not count are remembered too, so that they count from
        where they are once they join.
        """
        heard = self._heard.get(node)
        if heard is not None and life < heard[0]:
            return False
        self._heard[node] = (life, end)
        return self.restate(node, end)

    def restate(self, node: NodeId, end: Offset) -> bool:
        """Believe ``end`` even if it is lower than before; true if the mark moved.

        HOT: twice per append, for the append and for its flush.  The leader's own reports
        cannot overtake each other, and usually it is alone (benchmarks/replication/leader.py).
        """
        ends = self._ends
        if node not in ends:
            return False
        ends[node] = end
        return self._advance_to(end if len(ends) == 1 else min(ends.values()))

    def count(self, counted: Iterable[NodeId], *, enough: bool) -> bool:
        """Change who counts, and whether they are enough to move; true if the mark moved."""
        self._ends = {node: self.end_of(node) for node in counted}
        self._stalled = not enough
        return self._advance_to(min(self._ends.values(), default=_NOT_YET))

    def forget(self) -> None:
        """Drop every report: the next ones mean something else than the last."""
        self._heard.clear()
        self._ends = dict.fromkeys(self._ends, _NOT_YET)

    def forget_one(self, node: NodeId) -> None:
        """Drop what a replica reported that is none any more: its next copy begins anew."""
        self._heard.pop(node, None)

    def end_of(self, node: NodeId) -> Offset:
        """The end last reported by ``node``; zero if it was never heard of."""
        if node in self._ends:
            return self._ends[node]
        return self._heard[node][1] if node in self._heard else _NOT_YET

    def _advance_to(self, lowest: Offset) -> bool:
        if self._stalled or lowest <= self.mark:
            return False
        self.mark = lowest
        return True

"""Where each partition is read: at its leader, or at a replica in the reader's rack (KIP-392).

A reader that says its rack is sent to a replica there by the leader, which looks after who is in
sync.  It goes back to the leader

1. when that replica refuses or cannot be reached: what stands in the way there may not stand in the
   way at the leader, so nothing is reported to the application.  For a while it then says no rack,
   since the leader would send it there again;
2. when the leader changes, and after a while in any case: there may be a better one by then.
"""

from typing import Final, NamedTuple

from waystation.client.metadata import ClusterView
from waystation.model.ids import LeaderEpoch, NodeId, TopicPartition
from waystation.runtime.clock import Clock

__all__ = ["Sources"]

NOWHERE: Final = ""
_AVOID_S: Final = 10.0


class _Sent(NamedTuple):
    """To whom a leader of that epoch sent the reader, and until when that counts."""

    node: NodeId
    epoch: LeaderEpoch
    until_s: float


class Sources:
    """Chooses for one consumer; knows no connections."""

    def __init__(self, rack: str, max_age_ms: int, clock: Clock) -> None:
        self._rack = rack
        self._max_age_s = max_age_ms / 1_000
        self._clock = clock
        self._sent: dict[TopicPartition, _Sent] = {}
        self._avoid_until_s = 0.0

    def rack_at(self, node: NodeId) -> str:
        """What to say to a broker; nothing to a leader, while replicas in the rack are avoided.

        Who is no leader answers only those who say theirs.
        """
        if not self._rack or self._clock.monotonic() >= self._avoid_until_s:
            return self._rack
        near = any(sent.node == node for sent in self._sent.values())
        return self._rack if near else NOWHERE

    def of(self, where: TopicPartition, view: ClusterView) -> NodeId | None:
        """The broker to read a partition from, if there is one and we know it."""
        if self._sent and (sent := self._sent.get(where)) is not None:
            known = view.find(where)
            if (
                known is not None
                and known.epoch == sent.epoch
                and sent.node in view.brokers
                and self._clock.monotonic() < sent.until_s
            ):
                return sent.node
            del self._sent[where]
        return view.leader(where)

    def sent_to(self, where: TopicPartition, node: int, view: ClusterView) -> None:
        """The leader names a replica that is nearer; -1 if it has none to name."""
        known = view.find(where)
        if node >= 0 and known is not None:
            until_s = self._clock.monotonic() + self._max_age_s
            self._sent[where] = _Sent(NodeId(node), known.epoch, until_s)

    def refused(self, where: TopicPartition) -> None:
        """A partition could not be read where it was; its leader is asked next."""
        if self._sent.pop(where, None) is not None:
            self._avoid()

    def lost(self, node: NodeId) -> None:
        """A broker could not be reached."""
        near = [where for where, sent in self._sent.items() if sent.node == node]
        for where in near:
            del self._sent[where]
        if near:
            self._avoid()

    def _avoid(self) -> None:
        self._avoid_until_s = self._clock.monotonic() + _AVOID_S

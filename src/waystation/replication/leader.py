"""What the leader of a partition knows of its replicas, for one leader epoch.

A record is committed once every in-sync replica, leader included, holds it: on disk with
``durability=disk``, in its log with ``durability=memory``.  Three promises:

1. with ``disk``, the high watermark never passes what some in-sync replica has not flushed;
2. it stands still while the in-sync set has fewer members than ``min.insync.replicas``, and
   while the stored state names others who may lead: they lack what commits now;
3. a new leader may not answer for the end of the log before it has caught up with its
   predecessor: see ``settled``.

A state lives as long as its epoch; the next epoch starts a new one from the mark this one had.
"""

from collections.abc import Sequence

from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId
from waystation.model.offsets import Offset
from waystation.replication.epochs import EpochEnd, LeaderEpochs
from waystation.replication.high_watermark import HighWatermark
from waystation.replication.in_sync import InSync

DISK = "disk"
_START = Offset(0)


class LeaderState:
    """One partition seen by its leader; ``in_sync`` is as the coordination store has it."""

    __slots__ = (
        "_courted",
        "_eligible",
        "_end_at_election",
        "_flushed",
        "_leader",
        "_mark",
        "durability",
        "epoch",
        "in_sync",
        "min_insync",
    )

    def __init__(
        self,
        epoch: LeaderEpoch,
        in_sync: Sequence[NodeId],
        min_insync: int,
        durability: str,
        *,
        leader: NodeId,
        mark: Offset = _START,
        log_end: Offset = _START,
        eligible: Sequence[NodeId] = (),
    ) -> None:
        """``mark`` and ``log_end`` are where this replica stood when it was elected.

        ``eligible`` are those not in sync who may lead by the stored state.
        """
        assert leader in in_sync, f"leader {leader} is not in sync: {in_sync}"
        self.epoch = epoch
        self.in_sync = InSync(tuple(in_sync))
        self.min_insync = min_insync
        self.durability = durability
        self._flushed = durability == DISK
        self._leader = leader
        self._end_at_election = log_end
        self._mark = HighWatermark((), mark)
        self._courted: tuple[NodeId, ...] = ()
        self._eligible = bool(eligible)
        self._count()

    @property
    def high_watermark(self) -> Offset:
        """The end of what consumers may read."""
        return self._mark.mark

    @property
    def settled(self) -> bool:
        """Whether the mark has reached the log's end at election.

        Before, the predecessor may have shown consumers a higher mark than ours: questions
        about the end are answered with OFFSET_NOT_AVAILABLE rather than by moving back.
        """
        return self._mark.mark >= self._end_at_election

    @property
    def needed_to_join(self) -> Offset:
        """Where a follower's end must be before it may join the in-sync set.

        Not only at the mark: what lay between that and the log's end at election may have been
        committed by the predecessor, without this leader having heard of it yet.
        """
        return max(self._mark.mark, self._end_at_election)

    def enough_replicas(self) -> bool:
        """Whether ``acks=all`` may be accepted at all."""
        return self.in_sync.size >= self.min_insync

    def on_local(self, log_end: Offset, flushed_end: Offset) -> bool:
        """The leader's own log grew or was flushed; true if the high watermark moved.

        HOT: twice per append (benchmarks/replication/leader.py).
        """
        return self._mark.restate(self._leader, flushed_end if self._flushed else log_end)

    def on_follower(
        self, node: NodeId, life: BrokerEpoch, log_end: Offset, flushed_end: Offset
    ) -> bool:
        """A follower of incarnation ``life`` reports; true if the high watermark moved.

        Only where ``divergence`` found none: an end counts if all before it is the same here.
        """
        return self._mark.record(node, life, flushed_end if self._flushed else log_end)

    def forget(self, node: NodeId) -> None:
        """A replica is none any more; should it be one again, its copy begins anew.

        Its life may be the same: without this, the new copy would count for what the old one had.
        """
        self._mark.forget_one(node)

    def court(self, nodes: Sequence[NodeId]) -> bool:
        """Let the mark wait for replicas that are about to join; true if it moved.

        One that is always a little behind would else never reach a mark that moves with every
        append, as it does where the leader is alone in its set.
        """
        courted = tuple(nodes)
        if courted == self._courted:
            return False
        self._courted = courted
        return self._count()

    def propose(self, members: Sequence[NodeId]) -> bool:
        """A change of the in-sync set is on its way; true if the high watermark moved."""
        self.in_sync = self.in_sync.proposing(tuple(members))
        return self._count()

    def settle(self, members: Sequence[NodeId], eligible: Sequence[NodeId] = ()) -> bool:
        """The store holds ``members``, and names ``eligible``; true if the high watermark moved."""
        self.in_sync = self.in_sync.settled(tuple(members))
        self._eligible = bool(eligible)
        return self._count()

    def reconfigure(self, min_insync: int, durability: str) -> bool:
        """The topic's settings changed; true if the high watermark moved.

        With another durability all ends mean something else, so they are forgotten until
        they are reported again; the caller reports its own with ``on_local`` at once.
        """
        if durability != self.durability:
            self._mark.forget()
        self.min_insync, self.durability = min_insync, durability
        self._flushed = durability == DISK
        return self._count()

    def _count(self) -> bool:
        counted = (*self.in_sync.counted, *self._courted)
        return self._mark.count(counted, enough=self.enough_replicas() and not self._eligible)


def divergence(
    epochs: LeaderEpochs, log_end: Offset, offset: Offset, last_epoch: LeaderEpoch
) -> EpochEnd | None:
    """Where a replica's log must have left this one; ``None`` if it agrees up to ``offset``.

    ``offset`` is where it ends, ``last_epoch`` what wrote its last batch.  Logs that both have an
    epoch agree up to the lower of its ends, so that is where it is cut; perhaps repeatedly.

    HOT: once per partition of a follower's fetch.
    """
    if last_epoch < 0:
        return None
    latest = epochs.latest
    if last_epoch == latest:
        return None if offset <= log_end else EpochEnd(last_epoch, log_end)
    if last_epoch > latest:
        # Epochs that wrote nothing leave no trace: this log ends with the last that did.
        known = EpochEnd(latest if latest >= 0 else last_epoch, log_end)
    else:
        known = epochs.end_of(last_epoch, log_end)
    return None if known.epoch == last_epoch and offset <= known.end else known

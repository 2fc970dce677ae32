"""Messages of one queue on their way into other partitions, each once, whoever leads.

The mover decides (``scheduling/mover.py``), a courier carries out (``moving.py``); what is decided
is stored as the queue's notes, in ``__share_group_state``, together with which messages are done.

1. A batch is sent after the decision about it is stored, and its messages count as done no later
   than the next decision: one record says both, so no leader sends a message under two sequences.
2. A leader that was replaced stores nothing any more, and what it sends once more is known.
3. What has nothing under way leaves nothing to be done: the next leader begins with no lane.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from waystation.broker.moving import Contents, Courier, Moves
from waystation.model.errors import CorruptBatchError
from waystation.model.ids import LeaderEpoch, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.runtime.clock import Clock
from waystation.scheduling.lanes import Lanes, lanes_of, saved_lanes
from waystation.scheduling.mover import Mover
from waystation.scheduling.records import (
    Cancelled,
    Decided,
    Decision,
    Doubted,
    Retimed,
    Settled,
    Withdrawn,
)
from waystation.scheduling.wheel import Due
from waystation.sharing.leader import QueueLeader

__all__ = ["Outbound", "read_notes", "written_notes"]

_VERSION: Final = 1
_Decision = Decided | Settled | Doubted | Withdrawn


def written_notes(lanes: Lanes, memo: dict[str, Any]) -> bytes:
    """The notes of a queue: the ways to its targets, and what else its owner must know."""
    content = {"version": _VERSION, "lanes": saved_lanes(lanes), "memo": memo}
    return json.dumps(content, separators=(",", ":")).encode()


def read_notes(notes: bytes) -> tuple[Lanes, dict[str, Any]]:
    """What ``written_notes`` was given."""
    if not notes:
        return {}, {}
    try:
        content = json.loads(notes)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']} is not known here")
        memo: dict[str, Any] = content["memo"]
        return lanes_of(content["lanes"]), memo
    except (ValueError, KeyError, TypeError) as problem:
        raise CorruptBatchError(f"a queue's notes cannot be read: {problem}") from None


class Outbound:
    """The mover of one queue in one term of its leader."""

    def __init__(
        self,
        leader: QueueLeader[Any],
        epoch: LeaderEpoch,
        courier: Courier,
        contents: Contents,
        clock: Clock,
        *,
        arrived: Callable[[Iterable[Offset]], None],
        wake: Callable[[], None],
        write: Callable[[], None],
    ) -> None:
        """``arrived`` marks messages as done, ``write`` has the leader write what is due."""
        lanes, self.memo = read_notes(leader.notes.content)
        """What the owner wants to be stored with the next decision, and has found."""
        lanes = {target: lane for target, lane in lanes.items() if lane.last is not None}
        self._leader = leader
        self._clock = clock
        self._arrived = arrived
        self._write = write
        self.mover = Mover(lanes)
        self.mover.lead(epoch)
        self._written = Mover(lanes)
        """What is decided, stored or not."""
        self._deciding: deque[tuple[int, _Decision]] = deque()
        self._moves = Moves(self.mover, courier, contents, self._append, wake, clock)
        self._moves.arrived = lambda batch, _: arrived(Offset(at) for _, at in batch.items)

    # --- what is under way ----------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and the notes say so."""
        return not self._deciding and not any(
            lane.last is not None for lane in self._written.lanes().values()
        )

    @property
    def is_busy(self) -> bool:
        """Whether a batch is decided upon or sent, and is not known to have arrived."""
        lanes = self.mover.lanes()
        return bool(self._deciding) or not all(self.mover.last(one)[1] for one in lanes)

    def under_way(self) -> set[Offset]:
        """The messages of batches that were decided upon and are not known to be settled."""
        return {
            Offset(offset)
            for lane in self._written.lanes().values()
            for _, offset in (() if lane.last is None else lane.last.items)
        }

    def next_deadline(self) -> Millis | None:
        """When ``work`` has something to do."""
        return self.mover.next_deadline()

    # --- deciding -------------------------------------------------------------------------

    async def room(self, target: TopicPartition, most: int) -> int:
        """How many messages may be decided upon now."""
        await self._moves.enrol(target)
        return self.mover.room(target, most)

    def decide(self, target: TopicPartition, items: tuple[Due, ...]) -> None:
        """Send these, in this order, as one batch: there must be room for them."""
        self._append(self.mover.decide(target, items, self._clock.now()))

    def settle(self) -> None:
        """Nothing else is to be decided: leave nothing for the next leader to find out."""
        for one in self.mover.settle():
            self._append(one.decision)

    def note(self) -> int:
        """Store ``memo`` as it is; the version of the queue's state that has it."""
        return self._leader.note(written_notes(self._written.lanes(), self.memo))

    def work(self) -> None:
        """Take over what is stored by now, and do what is to be done."""
        while self._deciding and self._deciding[0][0] <= self._leader.queue.stored:
            self.mover.apply(self._deciding.popleft()[1])
        self._moves.work()

    async def aclose(self) -> None:
        """Give up what is under way: the next leader finds it in the notes."""
        self.mover.resign()
        await self._moves.aclose()

    def _append(self, decision: Decision) -> None:
        if isinstance(decision, Settled):
            # It may have been found by a search: what it says must not be stored without this.
            self._arrived(Offset(at) for _, at in self.mover.last(decision.target)[0])
        assert not isinstance(decision, Cancelled | Retimed), f"{decision} is a schedule's"
        self._written.apply(decision)
        self._deciding.append((self.note(), decision))
        self._write()

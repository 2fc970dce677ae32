"""What share groups have done at the share coordinators: queues that begin, move and are forgotten.

1. A group's orders are carried out one after the other: what is to be forgotten is never made
   again before it is.
2. A group is forgotten after the states of its queues: who is interrupted finds it still there,
   and may try again.  A group that got members meanwhile goes on, and its queues begin anew.
3. After each load it is made sure that queues which were begun are known where they should be.

What is to be done is decided by the groups' machines; the states are kept by others
(``share_states.py``), reached through a ``Persister``.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from waystation.model.errors import (
    FencedStateEpochError,
    NonEmptyGroupError,
    WaystationError,
)
from waystation.model.ids import TopicId
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis, Offset
from waystation.runtime.host import Host
from waystation.runtime.tasks import Tasks
from waystation.sharing.group_commands import (
    OffsetsPermit,
    QueuesDue,
    ShareGroupDescription,
    flat,
    grouped,
)
from waystation.sharing.group_records import Partitions
from waystation.sharing.persister import Delete, Initialize, Persister, StateSummary, Summarize
from waystation.sharing.state_records import QueueId
from waystation.telemetry.logs import get_logger

C = TypeVar("C")
Place = tuple[TopicId, int]

_NEVER_BEGUN = 0
_events = get_logger("coordinator")


class ShareOrders:
    """Carries out the orders of the share groups that this broker coordinates."""

    def __init__(self, persister: Persister) -> None:
        self._persister = persister
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    def clerk(self) -> "Clerk":
        """Who hears the orders of one machine."""
        return Clerk(self)

    async def settled(self, group_id: str, within_s: float) -> None:
        """Wait until no queue of the group is about to begin, or the time is over."""
        task = self._under_way.get(group_id)
        if task is not None:
            await asyncio.wait({task}, timeout=within_s)

    async def aclose(self) -> None:
        """Carry out nothing more."""
        await self._tasks.aclose()

    # --- what machines order --------------------------------------------------------------------

    def begin(self, host: Host[Any], due: QueuesDue) -> None:
        """Have queues begin; the machine is told which did."""
        name = f"begin-queues-{due.group_id}"
        task = self._under_way[due.group_id] = self._tasks.spawn(self._begin(host, due), name)
        task.add_done_callback(lambda _: self._begun(due.group_id, task))

    async def _begin(self, host: Host[Any], due: QueuesDue) -> None:
        queues = _queues(due.group_id, due.partitions)
        async with self._lock(due.group_id):
            commands = [Initialize(queue, due.state_epoch) for queue in queues]
            answers = await asked(self._persister.initialize, commands)
        known = grouped(
            (queue.topic_id, queue.partition)
            for queue, answer in zip(queues, answers, strict=True)
            if answer is None or isinstance(answer, FencedStateEpochError)
        )
        if known:
            host.submit(lambda now: host.machine.shares.queues_begun(now, due, known))
        elif not host.ended:
            host.submit(lambda now: _failed(host, now, due))
        if len(flat(known)) < len(queues):
            reasons = {str(one) for one in answers if isinstance(one, WaystationError)}
            _events.warning("queues.not.begun", group=due.group_id, reason="; ".join(reasons))

    def _begun(self, group_id: str, task: asyncio.Task[None]) -> None:
        if self._under_way.get(group_id) is task:
            del self._under_way[group_id]

    def make_sure(self, host: Host[Any]) -> None:
        """Have all queues known that a machine has begun; those that are stay as they are."""
        commands = [Initialize(queue, _NEVER_BEGUN) for queue in host.machine.shares.begun()]
        if commands:
            self._tasks.spawn(asked(self._persister.initialize, commands), "make-sure-of-queues")

    # --- what administrators order --------------------------------------------------------------

    async def delete_group(self, host: Host[Any], group_id: str) -> None:
        """Forget a group without members, and its queues."""
        async with self._lock(group_id):
            group: ShareGroupDescription = await host.ask(
                lambda now, to: host.machine.describe_share(now, group_id, to)
            )
            if group.members:
                raise NonEmptyGroupError(f"share group {group_id!r} has members: stop them first")
            await self._forget(group_id, group.begun)
            try:
                await host.ask(lambda now, to: host.machine.delete(now, group_id, to))
            except NonEmptyGroupError:
                host.submit(lambda now: host.machine.shares.queues_lost(now, group_id))
                raise

    async def delete_queues(self, host: Host[Any], group_id: str, topic_id: TopicId) -> None:
        """Forget the queues of a group over one topic, which nobody in it reads."""
        async with self._lock(group_id):
            permit: OffsetsPermit = await host.ask(
                lambda now, to: host.machine.shares.permit_delete(now, group_id, [topic_id], to)
            )
            await self._forget(group_id, permit.partitions)

    async def move_queues(
        self, host: Host[Any], group_id: str, starts: Mapping[Place, Offset]
    ) -> dict[Place, WaystationError | None]:
        """Let queues of a group without members begin elsewhere; what became of each."""
        async with self._lock(group_id):
            permit: OffsetsPermit = await host.ask(
                lambda now, to: host.machine.permit_alter(now, group_id, grouped(starts), to)
            )
            commands = [
                Initialize(QueueId(group_id, *place), permit.state_epoch, start)
                for place, start in starts.items()
            ]
            answers = await asked(self._persister.initialize, commands)
        return {
            place: answer if isinstance(answer, WaystationError) else None
            for place, answer in zip(starts, answers, strict=True)
        }

    async def summaries(
        self, group_id: str, places: Iterable[Place]
    ) -> dict[Place, StateSummary | WaystationError]:
        """Where each queue stands."""
        named = list(dict.fromkeys(places))
        commands = [Summarize(QueueId(group_id, *place)) for place in named]
        answers: list[Any] = await asked(self._persister.summarize, commands)
        return dict(zip(named, answers, strict=True))

    async def _forget(self, group_id: str, partitions: Partitions) -> None:
        commands = [Delete(queue) for queue in _queues(group_id, partitions)]
        for answer in await asked(self._persister.delete, commands):
            if isinstance(answer, WaystationError):
                raise answer

    def _lock(self, group_id: str) -> asyncio.Lock:
        lock = self._locks.get(group_id)
        if lock is None:
            lock = self._locks[group_id] = asyncio.Lock()
        return lock


class Clerk:
    """Takes the orders of one machine, and back to it what became of them."""

    __slots__ = ("_host", "_orders")

    def __init__(self, orders: ShareOrders) -> None:
        self._orders = orders
        self._host: Host[Any] | None = None

    def begin(self, host: Host[Any]) -> None:
        """Serve this host, which begins now."""
        self._host = host
        host.start()
        # Topics may have come or gone while nobody looked after the groups that read them.
        host.submit(host.machine.topics_changed)
        if not host.ended:
            self._orders.make_sure(host)

    def hear(self, due: object) -> None:
        """What the machine orders; that its host has ended needs nothing more."""
        if isinstance(due, QueuesDue):
            assert self._host is not None, "a machine gave an order before it had begun"
            self._orders.begin(self._host, due)


async def asked(ask: Callable[[C, Waiter], None], commands: Sequence[C]) -> list[object]:
    """The answers to all commands, errors included, in their order."""
    answers: list[object] = [None] * len(commands)
    unanswered = len(commands)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note(index: int, answer: object) -> None:
        nonlocal unanswered
        answers[index] = answer
        unanswered -= 1
        if not unanswered and not done.done():
            done.set_result(None)

    for index, command in enumerate(commands):
        ask(command, partial(note, index))
    if commands:
        await done
    return answers


def _failed(host: Host[Any], now: Millis, due: QueuesDue) -> Outcome[Any]:
    host.machine.shares.order_failed(now, due)
    return Outcome()


def _queues(group_id: str, partitions: Partitions) -> list[QueueId]:
    return [QueueId(group_id, topic, index) for topic, indexes in partitions for index in indexes]

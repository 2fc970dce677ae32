"""Brings what one queue has given up to the group's dead-letter topic.

1. A dead letter is in its topic once, whatever dies: see ``outbound.py``.
2. They go in the order of their offsets, one batch at a time; those that the topic refuses, and
   those of the same keys behind them, wait and hold up no others.
3. Nothing is dropped because a topic is missing, full or not to be written to: messages keep their
   place in the queue until they are moved, and the log says what would help.
4. What retention or compaction took meanwhile is gone, and said so.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from waystation.broker.dead_letter_topics import DeadLetterTopics
from waystation.broker.outbound import Outbound
from waystation.broker.queue_host import QueueHost
from waystation.broker.rows import rows_at
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.record import Row
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.scheduling.delivery import delivery_batch, fitting
from waystation.scheduling.records import Decided
from waystation.sharing.dead_letters import (
    DELIVERIES_EXHAUSTED,
    REJECTED_BY_CONSUMER,
    Origin,
    dead_letter_headers,
)
from waystation.sharing.states import DeadLetter
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Counter

__all__ = ["DeadLetterDesk", "Services"]

_BATCH_RECORDS: Final = 500
_READY_RECORDS: Final = 10_000
_PUT_OFF_MS: Final = 30_000
_LOOK_AGAIN_MS: Final = 1_000
_RETRY_S, _RETRY_MAX_S = 0.2, 10.0

_events = get_logger("dead-letters")


class Services(NamedTuple):
    """What all desks of a broker share."""

    topics: DeadLetterTopics
    clock: Clock
    moved: Counter
    lost: Counter


class DeadLetterDesk:
    """One queue's dead letters, while its host lives."""

    def __init__(self, host: QueueHost, services: Services) -> None:
        leader = host.leader
        assert leader is not None, f"{host} has dead letters before it is loaded"
        self._host, self._leader = host, leader
        self._services = services
        self._clock = services.clock
        self._wake = asyncio.Event()
        self._tasks = Tasks()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._ready: list[DeadLetter] = []
        """Stored as given up, when that was last asked for."""
        self._put_off: dict[Offset, Millis] = {}
        """Messages that their topic refuses, and until when nobody asks again."""
        self._held: dict[Offset, bytes | None] = {}
        """These, and messages that must not pass an older one of their key: with their keys."""
        self._keys: dict[Offset, bytes | None] = {}
        """Those of the last batch that was sent."""
        self._out = Outbound(
            leader,
            host.epoch,
            services.topics.courier,
            self._contents,
            services.clock,
            arrived=self._arrived,
            wake=self._wake.set,
            write=host.write_due,
        )

    def poke(self) -> None:
        """Something happened to the queue."""
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = self._tasks.spawn(self._run(), f"dead-letters-{self._host.queue_id}")

    @property
    def is_resting(self) -> bool:
        """Whether nothing was left to do when it last looked."""
        return self._task is not None and self._task.done()

    async def aclose(self) -> None:
        """Another leads, or nobody: what was decided is stored."""
        await self._tasks.aclose()
        await self._out.aclose()

    # --- the loop -------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._host.closed:
            self._wake.clear()
            try:
                pause_s = await self._step()
                self._failures = 0
            except WaystationError as error:
                pause_s = self._pause_after(error)
            if pause_s is None:
                return
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _step(self) -> float | None:
        """Do what can be done now; for how long nothing can, or ``None`` if nothing is left."""
        out = self._out
        out.work()
        letters = self._due()
        if letters and not self._host.settings().dead_letter_topic:
            self._give_up(letters)
        elif letters:
            await self._decide(letters)
        elif not self._leader.queue.dying:
            out.settle()
        self._host.write_due()
        out.work()
        if out.is_idle and not self._leader.queue.dying:
            return None
        return self._pause_s()

    def _pause_s(self) -> float:
        moments = [*self._put_off.values()]
        deadline = self._out.next_deadline()
        if deadline is not None:
            moments.append(deadline)
        now = self._clock.now()
        return max(min([*moments, now + _LOOK_AGAIN_MS]) - now, 1) / 1_000

    def _pause_after(self, error: WaystationError) -> float:
        pause_s = min(_RETRY_S * 2.0**self._failures, _RETRY_MAX_S)
        if self._failures % 8 == 4:  # a moment without a leader is nothing to tell
            _events.warning(
                "dead_letters.waiting",
                queue=str(self._host.partition.name),
                group=self._host.queue_id.group_id,
                waiting=self._leader.queue.dying,
                reason=str(error),
            )
        self._failures += 1
        return pause_s

    # --- choosing -------------------------------------------------------------------------

    def _due(self) -> list[DeadLetter]:
        """What may be decided upon now."""
        now = self._clock.now()
        for offset in [one for one, until in self._put_off.items() if until <= now]:
            del self._put_off[offset]
            self._held.clear()  # whoever must still wait is refused or held again
        self._ready = self._leader.queue.unmoved(self._ready)
        found = self._free(self._ready)
        if not found:
            # Asking costs a write of the queue: a long list is asked for, for many batches.
            self._ready = self._leader.dead_letters(_READY_RECORDS)
            found = self._free(self._ready)
        return found

    def _free(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """The first of these that are neither under way nor have to wait."""
        busy = self._out.under_way()
        some = _first(letters, _BATCH_RECORDS + len(self._held) + len(busy))
        if not busy and not self._held:
            return some
        return [
            one
            for letter in some
            for one in _single(letter)
            if one.first not in busy and one.first not in self._held
        ]

    def _give_up(self, letters: Sequence[DeadLetter]) -> None:
        """The group wants no dead letters any more."""
        count = sum(end - first for first, end, *_ in letters)
        _events.info("dead_letters.archived", group=self._host.queue_id.group_id, messages=count)
        for first, end, *_ in letters:
            self._leader.queue.moved(first, end)

    async def _decide(self, letters: Sequence[DeadLetter]) -> None:
        name = self._host.settings().dead_letter_topic
        target = await self._services.topics.target(self._host.partition.name, name)
        self._hear_refusal(target)
        room = await self._out.room(target, _BATCH_RECORDS)
        if not room:
            return
        numbers = {
            offset: -one.deliveries if one.is_rejected else one.deliveries
            for one in letters
            for offset in map(Offset, range(one.first, one.end))
        }
        offsets = list(numbers)[:room]
        rows, end = await rows_at(self._host.partition, offsets)
        self._gone([offset for offset in offsets if offset < end and offset not in rows])
        chosen = [
            rows[offset] for offset in offsets if offset in rows and self._may_go(rows[offset])
        ]
        if chosen and not self._host.closed:
            limit_bytes = self._services.topics.batch_bytes(target.topic)
            now = self._clock.now()
            dressed = [self._dressed(row, numbers[Offset(row[0])], now) for row in chosen]
            chosen = chosen[: fitting(dressed, limit_bytes)]
            items = tuple((numbers[Offset(row[0])], row[0]) for row in chosen)
            self._out.decide(target, items)

    def _may_go(self, row: Row) -> bool:
        """Whether no older message of its key is put off; one that may not go is held."""
        offset, _, key, _, _ = row
        if key is None or key not in self._held.values():
            return True
        self._held[Offset(offset)] = key
        return False

    def _hear_refusal(self, target: TopicPartition) -> None:
        refused = self._out.mover.refused(target)
        if refused is None:
            return
        offset = Offset(refused[1])
        self._put_off[offset] = Millis(self._clock.now() + _PUT_OFF_MS)
        self._held[offset] = self._keys.get(offset)
        _events.warning(
            "dead_letter.refused",
            queue=str(self._host.partition.name),
            group=self._host.queue_id.group_id,
            offset=offset,
            topic=target.topic,
            remedy="raise max.message.bytes of the dead-letter topic",
        )

    # --- sending --------------------------------------------------------------------------

    async def _contents(self, decided: Decided) -> bytes | None:
        numbers = {Offset(offset): number for number, offset in decided.items}
        rows, _ = await rows_at(self._host.partition, sorted(numbers), 1 << 62)
        if len(rows) != len(numbers):
            return None
        self._keys = {at: row[2] for at, row in rows.items()}
        dressed = [self._dressed(rows[at], numbers[at], decided.at) for at in numbers]
        return delivery_batch(decided, dressed)

    def _dressed(self, row: Row, number: int, died_at: Millis) -> Row:
        offset, timestamp, key, value, headers = row
        origin = Origin(
            self._host.partition.name,
            Offset(offset),
            Millis(timestamp),
            self._host.queue_id.group_id,
            abs(number),
            REJECTED_BY_CONSUMER if number < 0 else DELIVERIES_EXHAUSTED,
            died_at,
            self._host.reasons.of(Offset(offset)) if number < 0 else "",
        )
        return offset, timestamp, key, value, dead_letter_headers(headers, origin)

    def _arrived(self, offsets: Iterable[Offset]) -> None:
        before, arrived = self._leader.queue.dying, list(offsets)
        self._settle(arrived)
        self._host.reasons.forget(arrived)
        self._services.moved.value += before - self._leader.queue.dying

    def _settle(self, offsets: Iterable[Offset]) -> None:
        """Let the queue be done with these, neighbours at once."""
        first = end = Offset(-1)
        for offset in sorted(offsets):
            if offset != end:
                self._leader.queue.moved(first, end)
                first = offset
            end = Offset(offset + 1)
        self._leader.queue.moved(first, end)

    def _gone(self, offsets: Sequence[Offset]) -> None:
        """Retention or compaction took these before they could be moved."""
        if not offsets or self._host.closed:
            return
        self._settle(offsets)
        self._services.lost.value += len(offsets)
        _events.warning(
            "dead_letters.gone",
            queue=str(self._host.partition.name),
            group=self._host.queue_id.group_id,
            messages=len(offsets),
            first=offsets[0],
            remedy="keep the topic's records longer than its queues need for them",
        )


def _first(letters: Sequence[DeadLetter], limit: int) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    for one in letters:
        if limit <= 0:
            break
        found.append(one._replace(end=min(one.end, Offset(one.first + limit))))
        limit -= one.end - one.first
    return found


def _single(letter: DeadLetter) -> list[DeadLetter]:
    return [
        letter._replace(first=Offset(at), end=Offset(at + 1))
        for at in range(letter.first, letter.end)
    ]

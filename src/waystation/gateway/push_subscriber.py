"""One subscriber of a topic: every message once, in the order of its partition.

At the end of the topic it follows a tail that all share (``push_tail.py``), which writes to its
wire directly.  Elsewhere it reads for itself, page by page, up to where the tail is at the moment,
and follows from there.  Promises:

1. after the message with an id come exactly those behind the positions in it: none is left out,
   none comes twice; what retention has taken meanwhile is told as a gap;
2. a subscriber that does not read, or grants no credit, holds a page and the buffer of its
   connection, never more;
3. it ends with an error that says why if the topic goes.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.client.errors import PositionOutOfRangeError
from waystation.client.offsets import EARLIEST
from waystation.client.raw import TopicRecreatedError
from waystation.filters.selecting import Filter
from waystation.gateway.payloads import Values
from waystation.gateway.push_events import Face, events_of, gap_event
from waystation.gateway.push_ids import Ids, Positions, id_of, mark_of
from waystation.gateway.push_meters import PushMeters
from waystation.gateway.push_resting import few_keys
from waystation.gateway.push_tail import Entry, Tail
from waystation.gateway.push_tails import Tails
from waystation.gateway.reading import read_page
from waystation.gateway.streams import Wire
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

if TYPE_CHECKING:
    from waystation.client.metadata import TopicView
    from waystation.gateway.clients import Clients

__all__ = ["Subscriber", "Wanted"]

_PAGE_BYTES: Final = 64 << 10
_PAGE_MESSAGES: Final = 100
_AGAIN_S: Final = 0.1
_MOST_FAILURES: Final = 3
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_PATIENCE_S: Final = 10.0
_EARLY_S: Final = 0.01  # timers may go off a little early


class _SpentError(Exception):
    """All was pushed that there was credit for."""


class Wanted(NamedTuple):
    """What a subscriber reads, from where on, and how it is shown."""

    topic: "TopicView"
    partition: int | None
    """``None`` means all."""
    positions: dict[int, int]
    values: Values
    chosen: Filter | None
    beat_s: float = 15.0


class Subscriber:
    """Pushes to one wire; ``credit`` is how many messages it may push, ``None`` if any number.

    With ``is_limited`` it ends when there is no credit left.
    """

    def __init__(
        self,
        clients: "Clients",
        tails: Tails,
        meters: PushMeters,
        wanted: Wanted,
        face: Face,
        wire: Wire,
        *,
        credit: int | None = None,
        is_limited: bool = False,
    ) -> None:
        self._clients, self._tails, self._meters = clients, tails, meters
        self._topic, self._partition, self._positions = wanted[:3]
        self._values, self._chosen, self._beat_s = wanted[3:]
        self._keys = few_keys(self._chosen)
        self._is_resting = False
        self._face, self._wire = face, wire
        self._format = face.name, wanted.values
        self._pushed = meters.pushed
        self._mark = mark_of(self._topic.id)
        self._tail: Tail | None = None
        self._number = self._index = 0
        self._changed = asyncio.Event()
        self._now = asyncio.get_running_loop().time
        self._written_at = self._now()
        self._is_limited = is_limited
        self.credit = credit

    @property
    def id(self) -> str:
        """How far it has got."""
        return id_of(self._mark, self._positions)

    @property
    def is_behind(self) -> bool:
        """Whether there is something that was not pushed yet, as far as is known."""
        if self._tail is None or self._is_resting:
            return not self._is_resting
        return self._number < self._tail.next_number

    async def run(self) -> None:
        """Push until cancelled, the limit is reached, or something stands in the way."""
        self._meters.followers.add(self)
        try:
            await self._run()
        except _SpentError:
            return
        finally:
            self._meters.followers.discard(self)

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._check_topic()
            async with self._tails.following(self._clients, self._topic, self._partition) as tail:
                while await self._caught_up(tail):
                    failures = 0
                    await self._follow(tail)
            failure, failures = tail.failure, failures + 1
            if isinstance(failure, WaystationError) and (
                failure.code in _GONE or failures > _MOST_FAILURES
            ):
                raise failure
            await asyncio.sleep(_AGAIN_S)

    def grant(self, messages: int) -> None:
        """The subscriber takes so many more."""
        assert self.credit is not None, "credit for who needs none"
        if not self.credit:
            self._changed.set()
        self.credit += messages

    # --- what the tail calls --------------------------------------------------------------------

    def offer(self, entry: Entry) -> None:
        """Take an entry at once, if nothing is in the way.  HOT: once per entry and subscriber."""
        wire, credit = self._wire, self.credit
        if self._is_resting and self._number < entry.number:
            self._number, self._positions = entry.number, entry.before
        if self._number != entry.number or wire.is_paused or credit == 0:
            self._rouse()
            self._changed.set()
            return
        if self._chosen is not None or (credit is not None and credit <= entry.count):
            self._take(entry)
            return
        wire.write(entry.pieces.get(self._format) or entry.whole(self._face, self._values))
        self._number, self._positions = entry.number + 1, entry.after
        self._written_at = entry.made_at
        self._pushed.value += entry.count
        if credit is not None:
            self.credit = credit - entry.count

    def wake(self) -> None:
        """The tail has ended."""
        self._changed.set()

    # --- at the end -----------------------------------------------------------------------------

    async def _follow(self, tail: Tail) -> None:
        """Follow a tail until it ends, or this subscriber has fallen too far behind."""
        tail.followers.add(self)
        self._tail = tail
        try:
            while tail.failure is None:
                entry = tail.entry(self._number)
                self._check_limit()
                if entry is not None:
                    await self._room()
                    self._take(entry)
                elif self._number < tail.first_number:
                    return
                else:
                    self._positions = tail.positions
                    self._rest(tail)
                    await self._until_changed()
                    self._rouse()
        finally:
            self._rouse()
            self._tail = None
            tail.followers.discard(self)

    def _rest(self, tail: Tail) -> None:
        """Be asked no more about what has none of the keys that this one wants."""
        if self._keys is not None:
            self._is_resting = True
            tail.followers.discard(self)
            tail.resting.add(self, self._keys)

    def _rouse(self) -> None:
        """Be asked about everything again, from where nothing was left out."""
        if self._is_resting:
            self._pass_over()
            self._rest_no_more()

    def _rest_no_more(self) -> None:
        assert self._tail is not None, "it rests, and follows nothing"
        assert self._keys is not None, "it rests, and wants all keys"
        self._is_resting = False
        self._tail.resting.remove(self, self._keys)
        self._tail.followers.add(self)

    def _pass_over(self) -> None:
        """What it was not offered while it rested is nothing for it."""
        assert self._tail is not None, "it rests, and follows nothing"
        number, positions = self._tail.offered
        if number > self._number:
            self._number, self._positions = number, positions

    def _take(self, entry: Entry) -> None:
        """Write of an entry what is still to be written, and as much as there is credit for."""
        if entry.number != self._number:
            return  # the tail has written it while there was no room
        numbers: Sequence[int] = range(len(entry.messages))
        if self._chosen is not None:
            numbers = entry.chosen(self._chosen)
        left = [number for number in numbers if number >= self._index]
        now = left if self.credit is None else left[: self.credit]
        if now:
            events = entry.events(self._face, self._values)
            self._write([events[number] for number in now])
        if len(now) == len(left):
            self._number, self._index = entry.number + 1, 0
            self._positions = entry.after
        else:
            if self._is_resting:
                self._rest_no_more()
            self._index = now[-1] + 1 if now else self._index
            passed = entry.messages[: self._index]
            self._positions = entry.before | {one.partition: one.offset + 1 for one in passed}

    # --- behind it ------------------------------------------------------------------------------

    async def _caught_up(self, tail: Tail) -> bool:
        """Read up to where the tail is, and take a place in it; false if the tail has ended."""
        waited_s = 0.0
        while tail.failure is None:
            number, goal = tail.next_number, tail.positions
            while behind := self._behind(goal):
                for partition in behind:
                    await self._page(partition, goal[partition])
            if not self._is_ahead(goal) and tail.first_number <= number:
                self._number, self._index = number, 0
                return True
            waited_s += await self._moved(tail)
            if waited_s > _PATIENCE_S:
                await self._check_ends()
        return False

    def _behind(self, goal: Positions) -> list[int]:
        """The partitions in which it is not as far as ``goal``; a new one counts from its start."""
        return [where for where, offset in goal.items() if self._positions.get(where, 0) < offset]

    def _is_ahead(self, goal: Positions) -> bool:
        """Whether it comes from a node that was quicker; the tail here will be there soon."""
        return any(offset > goal.get(where, -1) for where, offset in self._positions.items())

    async def _moved(self, tail: Tail) -> float:
        with suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S):
                await tail.moved.wait()
        return _AGAIN_S

    async def _page(self, partition: int, goal: int) -> None:
        """Push the next messages of a partition, those before ``goal``."""
        await self._room()
        where, offset = (
            TopicPartition(self._topic.name, partition),
            self._positions.get(partition, 0),
        )
        limit = _PAGE_MESSAGES if self.credit is None else min(self.credit, _PAGE_MESSAGES)
        try:
            page = await read_page(
                self._clients,
                where,
                Offset(offset),
                limit=limit,
                max_bytes=_PAGE_BYTES,
                chosen=self._chosen,
            )
        except PositionOutOfRangeError as error:
            await self._skip(where, offset, error)
            return
        messages = [one for one in page.messages if one.offset < goal]
        ids = Ids(self._mark, self._positions)
        self._positions = self._positions | {partition: min(page.next_offset, goal)}
        if messages:
            self._write(events_of(messages, ids, self._face, self._values))
            return
        self._beat()  # a filter may look for long, and whoever comes back goes on from there
        if page.next_offset == offset:
            await asyncio.sleep(_AGAIN_S)  # its leader is not as far as the tail was

    async def _skip(
        self, where: TopicPartition, offset: int, error: PositionOutOfRangeError
    ) -> None:
        """Go on where the log begins now; an offset that was lost at its end is an error."""
        admin = await self._clients.admin()
        begin = (await admin.list_offsets({where: EARLIEST}))[where].offset
        if begin <= offset:
            raise error
        self._positions = self._positions | {where.partition: begin}
        event = gap_event(self._face, self.id, where.partition, offset, begin)
        self._wire.write(self._face.piece(event))

    # --- both -----------------------------------------------------------------------------------

    async def _room(self) -> None:
        """Wait until there is credit, and room at the wire."""
        while self.credit == 0 or self._wire.is_paused:
            self._check_limit()
            if self._wire.is_paused:
                await self._wire.drained()
            else:
                await self._until_changed()

    def _check_limit(self) -> None:
        if self._is_limited and self.credit == 0:
            raise _SpentError

    async def _until_changed(self) -> None:
        """Wait until there may be something to do; say from time to time that all is well."""
        try:
            async with asyncio.timeout_at(self._written_at + self._beat_s):
                await self._changed.wait()
        except TimeoutError:
            self._beat()
        self._changed.clear()

    def _beat(self) -> None:
        """Say that all is well, if nothing was said for so long."""
        now = self._now()
        if now - self._written_at < self._beat_s - _EARLY_S:
            return
        if self._is_resting:
            self._pass_over()
        if not self._wire.is_paused:
            self._wire.write(self._face.beat(self.id.encode()))
        self._written_at = now

    def _write(self, events: Sequence[bytes]) -> None:
        self._wire.write(self._face.piece(b"".join(events)))
        self._written_at = self._now()
        self._pushed.value += len(events)
        if self.credit is not None:
            self.credit -= len(events)
            if not self.credit:
                self._changed.set()

    async def _check_topic(self) -> None:
        """See that the topic is there, and still the same."""
        now = await self._clients.topic(self._topic.name)
        if now.id != self._topic.id:
            raise TopicRecreatedError(self._topic.name)

    async def _check_ends(self) -> None:
        """See that there is what this subscriber has seen; if not, it was lost."""
        for partition, offset in self._positions.items():
            where = TopicPartition(self._topic.name, partition)
            await read_page(self._clients, where, Offset(offset), limit=1, max_bytes=1)

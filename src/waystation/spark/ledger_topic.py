"""The records of sinks in a topic: read to its end, written under the mutex of a sink.

``__waystation_sinks`` is compacted, so that it holds little more than the last record of each
sink; whoever needs it first makes it.  Two things are not obvious:

1. Sinks share partitions, and who reads committed records is shown nothing past a transaction
   that is open, whosever it is.  So a reader asks where the log ends and waits until it has read
   up to there: what was finished before is below that.  A change takes milliseconds, and one
   whose writer died ends by its short time-out.
2. A broker that led the partition until a moment ago may show an older end.  So a change is
   checked once more when its place in the log is known: up to there, nothing may have come that
   it does not rest on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Final

from waystation.client.admin import Admin
from waystation.client.errors import PositionOutOfRangeError
from waystation.client.offsets import LATEST, list_offsets
from waystation.client.options import ConnectionOptions
from waystation.client.partitioner import partition_of_key
from waystation.client.producer import Producer
from waystation.client.raw import PartitionReader
from waystation.client.router import Router
from waystation.client.settings import ConsumerSettings, checked
from waystation.client.transport import Connect
from waystation.client.visible import Visibility
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import TopicExistsError, WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.records.batch import DECOMPRESSED_LIMIT_BYTES, records_of
from waystation.spark.ledger import NotWrittenError
from waystation.spark.sink_errors import LedgerBusyError, LedgerFormatError, SinkError
from waystation.spark.sink_state import SinkState, decode_state, encode_state, mutex_id
from waystation.telemetry.logs import get_logger

__all__ = ["PARTITIONS", "TOPIC", "TopicShelf"]

_events = get_logger("spark")

TOPIC: Final = "__waystation_sinks"

PARTITIONS: Final = 4
"""A sink's place is computed with this number, whatever partitions are added later."""

CHANGE_TIMEOUT_MS: Final = 5_000
"""How long one who died in the middle of a change holds up others of the same partition."""

_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "durability": "disk",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_FETCH_BYTES: Final = 1 << 20
_FETCH_WAIT_MS: Final = 50
_DELIVERY_MS: Final = 30_000
_FINAL: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Errors that trying again does not mend."""


class TopicShelf:
    """The topic, as one process sees it; ``close`` it."""

    def __init__(
        self,
        bootstrap: str,
        router: Router,
        options: ConnectionOptions,
        *,
        holder: Callable[[str], Awaitable[object]],
        connect: Connect,
        chance: Random,
        patience_ms: int,
    ) -> None:
        """``holder`` tells which producer, and in which state, has a transactional id."""
        self._holder = holder
        self._bootstrap, self._router, self._options = bootstrap, router, options
        self._connect, self._chance = connect, chance
        self._patience_s = patience_ms / 1_000
        self._pages: dict[tuple[int, str | None], _Page] = {}
        self._mutexes: dict[str, Producer] = {}
        self._exists = False

    async def close(self) -> None:
        """Let go of every mutex."""
        for sink in list(self._mutexes):
            await self._let_go(sink)

    # --- reading --------------------------------------------------------------------------------

    async def read(self, sink: str) -> SinkState | None:
        """The sink's record, with all that was written before this was asked."""
        if not await self._is_there():
            return None
        page = await self._page(_place(sink), sink)
        await page.read_to_end(sink)
        return page.state(sink)

    async def read_all(self) -> dict[str, SinkState]:
        """Every sink by name; those left out whose record nobody understands."""
        found: dict[str, SinkState] = {}
        if await self._is_there():
            for number in range(PARTITIONS):
                page = await self._page(number)
                await page.read_to_end("*")
                found |= page.states()
        return dict(sorted(found.items()))

    # --- changing -------------------------------------------------------------------------------

    async def take(self, sink: str) -> None:
        """Take the mutex: initialise its producer, which shuts out the one before."""
        await self._let_go(sink)
        producer = Producer(
            self._bootstrap,
            connect=self._connect,
            chance=self._chance,
            transactional_id=mutex_id(sink),
            transaction_timeout_ms=CHANGE_TIMEOUT_MS,
            delivery_timeout_ms=_DELIVERY_MS,
            linger_ms=0,
            **self._options,
        )
        try:
            await self._make_sure_it_is_there()
            await producer.start()
        except WaystationError as error:
            raise _not_written(error) from error
        self._mutexes[sink] = producer

    async def holder(self, sink: str) -> object:
        """The producer that has the mutex, its epoch and the state of its transaction."""
        with suppress(WaystationError):  # brokers that are away have no news of it either
            return await self._holder(mutex_id(sink))
        return None

    async def write(self, sink: str, before: SinkState | None, after: SinkState | None) -> None:
        """Write the record in place of ``before``, if nobody else has the mutex meanwhile."""
        producer, page = self._mutexes[sink], await self._page(_place(sink), sink)
        content = None if after is None else encode_state(sink, after)
        try:
            async with producer.transaction() as transaction:
                sent = await transaction.send(
                    TOPIC, content, key=sink, partition=page.where.partition
                )
                await page.read_to(sent.offset, sink)
                if page.state(sink) != before:
                    raise NotWrittenError(f"sink {sink} was changed by somebody else")
        except SinkError:
            await self._let_go(sink)
            raise
        except WaystationError as error:
            await self._let_go(sink)
            raise _not_written(error) from error
        except BaseException:
            await self._let_go(sink)
            raise

    # --- behind the scenes ----------------------------------------------------------------------

    async def _let_go(self, sink: str) -> None:
        producer = self._mutexes.pop(sink, None)
        if producer is not None:
            with suppress(WaystationError):
                await producer.close()

    async def _page(self, number: int, sink: str | None = None) -> "_Page":
        page = self._pages.get((number, sink))
        if page is None:
            page = _Page(self._router, TopicPartition(TOPIC, number), sink, self._patience_s)
            await page.open()
            self._pages[number, sink] = page
        return page

    async def _is_there(self) -> bool:
        if not self._exists:
            within_ms = self._router.settings.metadata_timeout_ms
            view = await self._router.retrying(lambda: self._router.look_up([TOPIC]), within_ms)
            self._exists = TOPIC in view.topics
        return self._exists

    async def _make_sure_it_is_there(self) -> None:
        if not await self._is_there():
            admin = Admin(self._bootstrap, connect=self._connect, **self._options)
            async with admin:
                with suppress(TopicExistsError):
                    await admin.create_topic(TOPIC, PARTITIONS, configs=_CONFIGS)


class _Page:
    """One partition: the newest record of one sink, or of each, as far as it was read."""

    def __init__(
        self, router: Router, where: TopicPartition, sink: str | None, patience_s: float
    ) -> None:
        self.where = where
        self._only = None if sink is None else sink.encode()
        self._router, self._patience_s = router, patience_s
        settings = ConsumerSettings(
            isolation="read_committed", fetch_max_wait_ms=_FETCH_WAIT_MS, fetch_min_bytes=1
        )
        self._reader = PartitionReader(router, checked(settings), where)
        self._at = Offset(0)
        self._contents: dict[str, bytes] = {}
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Find the partition."""
        await self._reader.open()

    def state(self, sink: str) -> SinkState | None:
        """The sink's record, as far as was read."""
        content = self._contents.get(sink)
        return None if content is None else decode_state(sink, content)

    def states(self) -> Mapping[str, SinkState]:
        """All of them that can be understood."""
        found = {}
        for sink in self._contents:
            try:
                found[sink] = decode_state(sink, self._contents[sink])
            except LedgerFormatError as error:
                _events.warning("sink.unreadable", sink=sink, error=str(error))
        return found

    async def read_to_end(self, sink: str) -> None:
        """Read what is in the log by now; ``sink`` is for whom, if it takes too long."""
        ends = await list_offsets(self._router, {self.where: LATEST})
        await self.read_to(ends[self.where].offset, sink)

    async def read_to(self, end: Offset, sink: str) -> None:
        """Read all before ``end``; waits for transactions that are open there."""
        async with self._turn:
            try:
                async with asyncio.timeout(self._patience_s):
                    while self._at < end:
                        await self._read_on()
            except TimeoutError:
                why = (
                    f"a transaction in {self.where} is open since offset {self._at}: find it with "
                    "`waystation txn list --state Ongoing`"
                )
                raise LedgerBusyError(sink, why, int(self._patience_s * 1_000)) from None

    async def _read_on(self) -> None:
        try:
            fetched = await self._reader.fetch(self._at, _FETCH_BYTES)
        except PositionOutOfRangeError as gone:
            self._at = max(self._at, gone.start)
            return
        visible = Visibility(DECOMPRESSED_LIMIT_BYTES, fetched.aborted)
        shown = [at for at, header in fetched.batches if visible.shows(fetched.records, at, header)]
        self._note_newest(fetched.records, shown)
        self._at = fetched.next_offset or self._at

    def _note_newest(self, records: memoryview, shown: list[int]) -> None:
        """Keep the last record of each sink, looking from behind.

        A partition holds up to a thousand older records that were not compacted yet; every task
        reads it, and who wants the record of one sink need not look into the others.
        """
        noted: set[bytes | None] = set()
        for at in reversed(shown):
            for record in reversed(records_of(records, at)):
                if record.key not in noted:
                    noted.add(record.key)
                    self._note(record.key, record.value)
            if self._only is not None and self._only in noted:
                return

    def _note(self, key: bytes | None, content: bytes | None) -> None:
        if key is None or self._only not in (None, key):
            return
        sink = key.decode(errors="replace")
        if content is None:
            self._contents.pop(sink, None)
        else:
            self._contents[sink] = bytes(content)


def _place(sink: str) -> int:
    return partition_of_key(sink.encode(), PARTITIONS)


def _not_written(error: WaystationError) -> WaystationError:
    """``error`` itself where nothing is gained by trying again."""
    cause = error.__cause__ if isinstance(error.__cause__, WaystationError) else error
    if isinstance(error, NotWrittenError) or cause.code in _FINAL:
        return cause if cause.code in _FINAL else error
    return NotWrittenError(str(error))

"""Reads one span of a partition in an executor, as Arrow batches.

``read_span`` is a plain generator, as Spark wants it, over an event loop in another thread
(``ahead.py``).  Promises:

1. every offset of the span that exists and is visible comes once, in order; a new leader or a
   broker that restarts costs time, ``request.timeout.ms`` at most without an answer;
2. it ends at the end of the span, also where compaction left a gap there, and never waits for
   records that do not exist;
3. offsets that were deleted, or lie behind the end of the log, are a ``DataLossError``, or with
   ``failOnDataLoss=false`` a warning; a topic that vanishes or is made anew meanwhile is an
   error in any case;
4. while Spark consumes what came, the next is made ready; two answers and six Arrow batches are
   the most that is in memory, and that memory is used over and over.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from waystation.client.errors import PositionOutOfRangeError
from waystation.client.options import connection_settings
from waystation.client.raw import Fetched, PartitionReader
from waystation.client.router import Router
from waystation.client.settings import ConsumerSettings, checked
from waystation.client.transport import Connect, connect_tcp
from waystation.model.errors import RequestTimedOutError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.records.lending import Lender
from waystation.spark.ahead import Ahead
from waystation.spark.decode import SpanDecoder
from waystation.spark.errors import DataLossError
from waystation.spark.memory import keep_freed_memory
from waystation.spark.option_names import connection_options
from waystation.spark.spans import Span
from waystation.telemetry.logs import get_logger

__all__ = ["ReadPlan", "SpanWalk", "read_span"]

_events = get_logger("spark")

FETCH_BYTES: Final = 8 << 20
"""What one answer may hold.  Smaller ones cost the broker more for each record, by a third at
2 MB; larger ones take memory (benchmarks/spark)."""

_FRAMES: Final = Lender(FETCH_BYTES + (1 << 20))
"""The memory of answers, for all tasks that this process has one after the other."""

_LEAST_FETCH_BYTES: Final = 64 << 10
_GUESSED_RECORD_BYTES: Final = 1 << 10

_BEHIND_PATIENCE_S: Final = 2.0
"""How long a leader may know less of the log than the driver was told: it is new, and learns."""

_PAUSE_S: Final = 0.05


class ReadPlan(NamedTuple):
    """What every task of a read has in common; it travels to the executors.

    ``columns`` are names out of ``ARROW``, in the order wanted: what is not among them is not
    copied.  ``client`` holds further options of the client by their Kafka names.
    """

    bootstrap: str
    columns: tuple[str, ...]
    isolation: str
    fail_on_data_loss: bool
    client: Mapping[str, str]
    where: str = ""
    """A filter's expression, or none."""


def read_span(plan: ReadPlan, span: Span) -> Iterator[pa.RecordBatch]:
    """What the span holds, in the order of its offsets."""
    if span.start >= span.end:
        return
    keep_freed_memory()
    decoder = SpanDecoder(plan.columns, span, plan.where)
    with Ahead(_decoded(SpanWalk(plan, span), decoder)) as batches:
        yield from batches


async def _decoded(walk: "SpanWalk", decoder: SpanDecoder) -> AsyncGenerator[pa.RecordBatch, None]:
    try:
        await walk.begin()
        while (fetched := await walk.next()) is not None:
            for batch in decoder.decode(fetched):
                yield batch
                del batch  # neither is needed here any more, and their memory is used again
            del fetched
        for batch in decoder.rest():
            yield batch
    finally:
        await walk.close()


class SpanWalk:
    """From answer to answer through the span, one asked for ahead."""

    def __init__(self, plan: ReadPlan, span: Span, *, connect: Connect | None = None) -> None:
        self._plan, self._span = plan, span
        self._at = Offset(span.start)
        settings = connection_settings(connection_options(plan.client))
        thrifty = partial(connect_tcp, allocate=_FRAMES)
        self._router = Router(plan.bootstrap, settings, connect=connect or thrifty)
        self._reader = PartitionReader(
            self._router,
            checked(ConsumerSettings(isolation=plan.isolation)),
            TopicPartition(span.topic, span.partition),
        )
        self._ahead: asyncio.Task[Fetched] | None = None
        self._bytes_per_offset = float(_GUESSED_RECORD_BYTES)
        self._waiting_since: float | None = None

    async def begin(self) -> None:
        """Find the partition and ask for its first records."""
        await self._reader.open()

    async def close(self) -> None:
        """Leave nothing behind."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)
        await self._router.close()

    async def next(self) -> Fetched | None:
        """What comes next; ``None`` once the span is read."""
        while self._at < self._span.end:
            try:
                fetched = await self._fetched()
            except PositionOutOfRangeError:
                await self._find_the_log()
                continue
            if fetched.next_offset is None:
                await self._wait_or_end(fetched)
                continue
            offsets = fetched.next_offset - self._at
            self._bytes_per_offset = len(fetched.records) / offsets
            self._at = fetched.next_offset
            self._waiting_since = None
            await self._ask_ahead()
            return fetched
        return None

    async def _fetched(self) -> Fetched:
        ahead, self._ahead = self._ahead, None
        return await (self._ask() if ahead is None else ahead)

    async def _ask(self) -> Fetched:
        """As much as is left, if records stay as large as the last ones, within bounds."""
        left = int((self._span.end - self._at) * self._bytes_per_offset)
        most_bytes = min(max(left, _LEAST_FETCH_BYTES), FETCH_BYTES)
        return await self._reader.fetch(self._at, most_bytes)

    async def _ask_ahead(self) -> None:
        """Have the next question on the wire before anyone looks at this answer."""
        if self._at >= self._span.end:
            return
        self._ahead = asyncio.create_task(self._ask(), name="spark-ahead")
        # Once for the task to write, once for the loop to send.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    # --- where nothing is -------------------------------------------------------------------

    async def _find_the_log(self) -> None:
        """The offset asked for is not in the log: go where the log is, if that is allowed."""
        start, end = await self._reader.ends()
        if self._at < start:
            upto = min(Offset(self._span.end), start)
            self._lose(self._at, upto, f"the log begins at {start} now")
            self._at = start
        elif self._at > end:
            if await self._has_waited(_BEHIND_PATIENCE_S):
                self._lose(end, self._span.end, f"the log ends at {end}")
                self._at = Offset(self._span.end)
        else:
            await self._has_waited(_BEHIND_PATIENCE_S)  # it moved between two questions

    async def _wait_or_end(self, fetched: Fetched) -> None:
        """Nothing came: it was not to be given yet, or is not there yet, or not any more."""
        if fetched.throttle_ms > 0:
            self._waiting_since = None
            await asyncio.sleep(fetched.throttle_ms / 1_000)
            return
        end = fetched.high_watermark
        committed = self._plan.isolation == "read_committed"
        if end > self._at and committed and 0 <= fetched.last_stable_offset <= self._at:
            await self._wait_for_transaction()
        elif await self._has_waited(_BEHIND_PATIENCE_S):
            if end < self._span.end:
                self._lose(max(end, self._at), self._span.end, f"the log ends at {end}")
            self._at = Offset(self._span.end)

    async def _wait_for_transaction(self) -> None:
        patience_s = self._router.settings.request_timeout_ms / 1_000
        if await self._has_waited(patience_s):
            span = self._span
            raise RequestTimedOutError(
                f"partition {span.topic}-{span.partition}: a transaction that is open since "
                f"offset {self._at} or before hides what was to be read up to {span.end}: end it, "
                "read a smaller range, or set the option isolationLevel to read_uncommitted"
            )

    async def _has_waited(self, patience_s: float) -> bool:
        """Whether nothing came for so long; otherwise wait a little."""
        now = asyncio.get_running_loop().time()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since > patience_s:
            return True
        await asyncio.sleep(_PAUSE_S)
        return False

    def _lose(self, start: int, end: int, why: str) -> None:
        span = self._span
        if self._plan.fail_on_data_loss:
            raise DataLossError(
                span.topic, span.partition, f"offsets {start} to {end - 1} are gone: {why}"
            )
        _events.warning(
            "span.lost", topic=span.topic, partition=span.partition, start=start, end=end, why=why
        )

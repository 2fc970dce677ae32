"""Arrow batches become record batches, partition by partition.

What holds here:

1. rows of one key, and rows that name one partition, stay in the order they came in; where a
   topic has a single partition all rows do;
2. a row goes to the partition it names, else to that of its key, as every Kafka client has it,
   else it is spread: rows without a key fill one batch after the other, and each full one goes
   to the next partition in turn;
3. a batch is as large as it may be: ``batch_bytes``, or what the topic takes if that is less; a
   record that is larger than that goes alone, if the topic takes it;
4. what is not handed out yet takes ``OPEN_BYTES`` of memory at most, however many partitions
   there are: then the largest batches go as they are.

The copying is done by the compiled ``records/packing.py``; the batches are sent by
``sending.py``.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

import pyarrow as pa

from waystation.client.errors import MessageRefusedError, NoSuchPartitionError
from waystation.model.ids import TopicPartition
from waystation.records.packed import PackedBatch
from waystation.records.packing import ByteRows, HeaderRows, NumberRows, Rows, in_lanes, lanes_of
from waystation.runtime.clock import Clock, SystemClock
from waystation.spark.errors import BadOptionError

__all__ = ["BATCH_BYTES", "Encoder", "Packed", "TopicFacts"]

BATCH_BYTES: Final = 1 << 20
"""The larger, the less each record costs the broker; what a topic takes by default is no more."""

OPEN_BYTES: Final = 32 << 20
_LEAST_ROOM_BYTES: Final = 1 << 10
_TIME: Final = pa.timestamp("us", tz="UTC")


class TopicFacts(NamedTuple):
    """What must be known of a topic to write to it; ``led`` are the partitions with a leader."""

    name: str
    partitions: int
    led: Sequence[int]
    max_message_bytes: int


class Packed(NamedTuple):
    """A batch that is ready to be sent."""

    topic: str
    partition: int
    batch: PackedBatch


class Encoder:
    """Encodes what one task writes; ``topic`` is where all rows go if it is given.

    ``topics`` tells of a topic when its first row comes.  ``most_bytes`` is the largest request
    that a broker is sent.  Batches that will be ``compressed`` may be larger before that than
    their topic takes.
    """

    def __init__(
        self,
        topics: Callable[[str], TopicFacts],
        *,
        topic: str = "",
        batch_bytes: int = BATCH_BYTES,
        most_bytes: int = 8 << 20,
        compressed: bool = False,
        clock: Clock | None = None,
        chance: Random | None = None,
        open_bytes: int = OPEN_BYTES,
    ) -> None:
        self.rows = 0
        """How many rows were added so far."""
        self._topics, self._topic = topics, topic
        self._batch_bytes, self._most_bytes, self._compressed = batch_bytes, most_bytes, compressed
        self._clock, self._chance = clock or SystemClock(), chance or Random()
        self._routes: dict[str, _Route] = {}
        self._lanes: list[_Lane] = []
        self._most_open_bytes, self._open_bytes = open_bytes, 0
        self._lane_of, self._order, self._starts = array("i"), array("i"), array("i")

    def add(self, rows: pa.RecordBatch) -> Iterator[Packed]:
        """The batches that ``rows`` have filled; to be gone through to its end.

        HOT: once per Arrow batch, a little for each partition (benchmarks/records/packing.py).
        """
        count = rows.num_rows
        if not count:
            return
        packed = self._packable(rows)
        self._find_lanes(rows, packed)
        in_lanes(self._lane_of, count, self._order, self._starts)
        for number, lane in enumerate(self._lanes):
            first, stop = self._starts[number], self._starts[number + 1]
            while first < stop:
                first = self._fill(lane, packed, first, stop)
                if first < stop:
                    yield self._taken(lane)
        self.rows += count
        if self._open_bytes > self._most_open_bytes:
            yield from self._largest()

    def flush(self) -> Iterator[Packed]:
        """What is left when nothing more comes."""
        for lane in self._lanes:
            if lane.batch is not None:
                yield self._taken(lane)

    # --- lanes ------------------------------------------------------------------------------

    def _find_lanes(self, rows: pa.RecordBatch, packed: Rows) -> None:
        """Note for every row in which lane it goes."""
        count = rows.num_rows
        names, topics = self._named(rows)
        routes = [self._route(name) for name in names]
        if len(self._lane_of) < count:
            self._lane_of, self._order = array("i", bytes(4 * count)), array("i", bytes(4 * count))
        if len(self._starts) != len(self._lanes) + 1:
            self._starts = array("i", bytes(4 * (len(self._lanes) + 1)))
        column = _column(rows, "partition")
        good = lanes_of(
            packed,
            None if column is None else _numbers(column, pa.int64()),
            topics,
            array("i", [route.first for route in routes]),
            array("i", [route.facts.partitions for route in routes]),
            self._lane_of,
        )
        if good < count:
            assert column is not None, "a partition that no row asked for"
            facts = routes[0 if topics is None else topics[good]].facts
            where = TopicPartition(facts.name, column[good].as_py())
            raise NoSuchPartitionError(where, facts.partitions)

    def _named(self, rows: pa.RecordBatch) -> "tuple[list[str], array[int] | None]":
        """The topics of the rows, and which of them each row goes to if there are several."""
        if self._topic:
            return [self._topic], None
        column = _column(rows, "topic")
        if column is None:
            raise BadOptionError(
                "nobody says where the rows go: set option topic, or give the frame a column topic"
            )
        if column.null_count:
            raise BadOptionError("column topic is null in a row: say where it goes")
        found = column.dictionary_encode()
        names = found.dictionary.to_pylist()
        if len(names) == 1:
            return names, None
        numbers = array("i")
        numbers.frombytes(_values(found.indices.cast(pa.int32()), "i"))
        return names, numbers

    def _route(self, name: str) -> "_Route":
        route = self._routes.get(name)
        if route is None:
            facts = self._topics(name)
            limit_bytes = min(self._batch_bytes, facts.max_message_bytes, self._most_bytes)
            route = self._routes[name] = _Route(
                facts, len(self._lanes), limit_bytes, self._chance.randrange(1 << 16)
            )
            # One more than there are partitions, for rows without a key.
            for partition in range(facts.partitions + 1):
                self._lanes.append(_Lane(route, partition))
        return route

    # --- batches ----------------------------------------------------------------------------

    def _fill(self, lane: "_Lane", rows: Rows, first: int, stop: int) -> int:
        batch = lane.batch
        if batch is None:
            batch = lane.batch = PackedBatch(self._room_bytes(lane))
            self._open_bytes += len(batch.out)
        before_bytes = len(batch.out)
        first = batch.fill(rows, self._order, first, stop, lane.route.limit_bytes)
        self._open_bytes += len(batch.out) - before_bytes
        if batch.size_bytes > lane.route.limit_bytes:
            self._check_size(lane.route.facts, batch.size_bytes)
        return first

    def _room_bytes(self, lane: "_Lane") -> int:
        """As much as the last batch took, which the next will too, unless there are many lanes."""
        fair_bytes = self._most_open_bytes // (4 * len(self._lanes))
        return max(_LEAST_ROOM_BYTES, min(lane.last_bytes, fair_bytes))

    def _taken(self, lane: "_Lane") -> Packed:
        batch, lane.batch = lane.batch, None
        assert batch is not None, "a batch that was never begun"
        self._open_bytes -= len(batch.out)
        lane.last_bytes = batch.size_bytes
        return Packed(lane.route.facts.name, lane.target(), batch)

    def _largest(self) -> Iterator[Packed]:
        """The largest batches there are, until half of the room is free again."""
        opened = [lane for lane in self._lanes if lane.batch is not None]
        opened.sort(key=_Lane.held_bytes, reverse=True)
        for lane in opened:
            if self._open_bytes <= self._most_open_bytes // 2:
                break
            yield self._taken(lane)

    def _check_size(self, facts: TopicFacts, size_bytes: int) -> None:
        """Refuse a record that the broker would refuse, or that does not fit into a request."""
        if size_bytes > facts.max_message_bytes and not self._compressed:
            raise MessageRefusedError(
                f"a row for topic {facts.name} takes {size_bytes} bytes as a record, the topic "
                f"takes {facts.max_message_bytes}: write less, compress it, or raise "
                "max.message.bytes of the topic",
                size_bytes,
                facts.max_message_bytes,
            )
        if size_bytes > self._most_bytes:
            raise MessageRefusedError(
                f"a row for topic {facts.name} takes {size_bytes} bytes as a record, a request "
                f"may have {self._most_bytes}: write less, or raise option kafka.max.request.size",
                size_bytes,
                self._most_bytes,
            )

    # --- columns ----------------------------------------------------------------------------

    def _packable(self, rows: pa.RecordBatch) -> Rows:
        keys, values = _column(rows, "key"), _column(rows, "value")
        times, headers = _column(rows, "timestamp"), _column(rows, "headers")
        return Rows(
            rows.num_rows,
            None if values is None else _bytes(values),
            None if keys is None else _bytes(keys),
            None if times is None else _numbers(times, _TIME),
            None if headers is None else _headers(headers),
            now_ms=self._clock.now(),
        )


class _Route:
    """A topic's lanes, from ``first`` on, and whose turn it is to get rows without a key."""

    __slots__ = ("facts", "first", "limit_bytes", "turn")

    def __init__(self, facts: TopicFacts, first: int, limit_bytes: int, turn: int) -> None:
        self.facts, self.first, self.limit_bytes, self.turn = facts, first, limit_bytes, turn


class _Lane:
    """A partition's batch on its way; the lane behind the last partition is nobody's."""

    __slots__ = ("_partition", "batch", "last_bytes", "route")

    def __init__(self, route: _Route, partition: int) -> None:
        self.route, self._partition = route, partition
        self.last_bytes = 0
        self.batch: PackedBatch | None = None

    def target(self) -> int:
        """Where the batch goes."""
        facts = self.route.facts
        if self._partition < facts.partitions:
            return self._partition
        self.route.turn += 1
        among = facts.led or range(facts.partitions)
        return among[self.route.turn % len(among)]

    def held_bytes(self) -> int:
        """What the batch takes of the memory."""
        return 0 if self.batch is None else len(self.batch.out)


# --- Arrow's buffers ------------------------------------------------------------------------


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    at = rows.schema.get_field_index(name)
    return None if at < 0 else rows.column(at)


def _bits(column: pa.Array) -> memoryview | None:
    return memoryview(column.buffers()[0]).cast("B") if column.null_count else None


def _values(column: pa.Array, form: str) -> memoryview:
    """The numbers of a column that has no nulls and is of one type's width."""
    width = array(form).itemsize
    view = memoryview(column.buffers()[1])
    return view[width * column.offset : width * (column.offset + len(column))].cast("B")


def _ends(column: pa.Array) -> memoryview:
    return memoryview(column.buffers()[1])[: 4 * (column.offset + len(column) + 1)].cast("i")


def _bytes(column: pa.Array) -> ByteRows:
    """Text is its bytes in UTF-8, as Arrow has it; what is laid out otherwise is laid out anew."""
    if column.type not in (pa.binary(), pa.string()):
        column = column.cast(pa.binary())
    content = column.buffers()[2]
    view = b"" if content is None else memoryview(content).cast("B")
    return ByteRows(_bits(column), _ends(column), view, column.offset, len(column))


def _numbers(column: pa.Array, kind: pa.DataType) -> NumberRows:
    if column.type != kind:
        column = column.cast(kind)
    view = memoryview(column.buffers()[1])[: 8 * (column.offset + len(column))].cast("q")
    return NumberRows(_bits(column), view, column.offset, len(column))


def _headers(column: pa.Array) -> HeaderRows:
    members = column.values
    # A header that is null as a whole becomes one without a name, which is refused.
    names, values = (
        members.flatten() if members.null_count else (members.field(0), members.field(1))
    )
    return HeaderRows(
        _bits(column),
        _ends(column),
        _bytes(names),
        _bytes(values),
        len(members),
        column.offset,
        len(column),
    )

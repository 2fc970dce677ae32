"""Topics as tables: ``spark.read.format("waystation")`` and ``spark.readStream``.

The driver plans, in offsets alone; each task reads one span of one partition (``reading.py``).
Promises:

1. a batch read holds every offset that was there when it was planned, once;
2. a stream reads every offset from where it began, once for each time that Spark runs a batch;
3. offsets that cannot be read are an error that names them, unless ``failOnDataLoss`` is false.

Spark makes a reader in several processes and pickles it, so a reader holds options until
somebody asks it something.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from waystation.client.descriptions import TopicDescription
from waystation.model.errors import UnknownTopicError
from waystation.model.ids import TopicId, TopicPartition
from waystation.model.settings import unknown_option
from waystation.runtime.clock import SystemClock
from waystation.spark.brokers import Brokers
from waystation.spark.columns import COLUMNS, WITH_HEADERS
from waystation.spark.errors import BadOptionError, DataLossError, speaking_plainly
from waystation.spark.offsets import Offsets, offsets_of, to_json
from waystation.spark.options import ReadOptions, parse_options
from waystation.spark.planning import (
    NO_LIMITS,
    Held,
    Limits,
    Loss,
    Position,
    ends_within,
    is_enough,
    limited,
    resolved,
    resumed,
    spans_between,
    without_losses,
)
from waystation.spark.reading import ReadPlan, read_span
from waystation.spark.sink import (
    BatchTopicWriter,
    StreamTopicWriter,
    batch_writer,
    stream_writer,
)
from waystation.spark.spans import Span
from waystation.telemetry.logs import get_logger

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SpanPartition", "TopicReader", "TopicSource", "TopicStreamReader"]

_events = get_logger("spark")

_LOOKS: Final = 3

Told = dict[str, dict[str, int]]
"""Offsets as Spark keeps them."""


class TopicSource(DataSource):
    """What Spark makes of ``format("waystation")``."""

    @classmethod
    def name(cls) -> str:
        """What users call it."""
        return "waystation"

    @speaking_plainly()
    def schema(self) -> StructType:
        """All columns; whoever wants fewer gives a narrower schema."""
        options = parse_options(self.options, stream=None)
        return WITH_HEADERS if options.include_headers else COLUMNS

    @speaking_plainly()
    def reader(self, schema: StructType) -> "TopicReader":
        """Reads what is there."""
        return TopicReader(parse_options(self.options, stream=False), _columns(schema))

    def streamReader(self, schema: StructType) -> "TopicStreamReader":  # noqa: N802 - Spark's name
        """Reads what is there and what comes."""
        return TopicStreamReader(self.options, schema)

    @speaking_plainly()
    def writer(self, schema: StructType, overwrite: bool) -> BatchTopicWriter:
        """Writes a frame into topics; ``sink.py`` says how."""
        return batch_writer(self.options, schema, overwrite)

    @speaking_plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamTopicWriter:  # noqa: N802
        """Writes batch after batch into topics."""
        return stream_writer(self.options, schema, overwrite)


class SpanPartition(InputPartition):
    """What one task reads; it travels to an executor."""

    def __init__(self, plan: ReadPlan, span: Span) -> None:
        self.plan, self.span = plan, span


class TopicReader(DataSourceReader):
    """Reads topics from one position to another."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns

    @speaking_plainly()
    def partitions(self) -> list[InputPartition]:
        """Decide what is read, and by how many tasks."""
        options = self._options
        with Brokers(options) as brokers:
            topics = brokers.topics()
            _check_exists(options, topics)
            held = brokers.held(_existing(options, topics))
            start = _found(brokers, options, options.starting, held)
            end = _found(brokers, options, options.ending, held)
        first, lost = without_losses(start, held, options.starting.option)
        last, lost_too = without_losses(end, held, options.ending.option)
        _report(options, [*lost, *lost_too])
        _refuse_backwards(options, start, end)
        return _tasks(options, self._columns, first, last)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """What one task reads, in an executor."""
        return _read(partition)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics on and on; Spark's checkpoint knows how far.

    Options are understood at the first question: what is raised while a stream reader is made,
    Spark shows as a mistake of its own.
    """

    def __init__(self, said: Mapping[str, str], schema: StructType) -> None:
        self._said, self._schema = dict(said), schema
        self._clock = SystemClock()
        self._reached: Brokers | None = None
        self._ids: dict[str, TopicId] = {}
        self._renewed: tuple[Told, frozenset[str]] = ({}, frozenset())
        self._there: dict[TopicPartition, Held] = {}
        self._target: dict[TopicPartition, int] | None = None
        self._latest: Told | None = None
        self._published: dict[TopicPartition, int] = {}
        self._planned_at = float("-inf")

    # --- how far to go --------------------------------------------------------------------------

    @speaking_plainly()
    def initialOffset(self) -> Told:  # noqa: N802 - Spark's name
        """Where a stream without a checkpoint begins."""
        options = self._options
        _check_exists(options, self._brokers.topics())
        held = self._survey({})
        start = _found(self._brokers, options, options.starting, held)
        first, lost = without_losses(start, held, options.starting.option)
        _report(options, lost)
        return to_json(first)

    @speaking_plainly()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """One of the limits that the options set; ``latestOffset`` keeps all of them."""
        limits = self._options.limits
        if limits.max_offsets:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    @speaking_plainly()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where everything ends now: what comes later is another run's."""
        held = self._brokers.held(_existing(self._options, self._brokers.topics()))
        self._target = {where: has.end for where, has in held.items()}

    @speaking_plainly()
    def latestOffset(self, start: Told, limit: ReadLimit) -> Told:  # noqa: N802 - Spark's name
        """How far the next batch goes; ``start`` itself if there is none yet.

        Spark has finished everything before ``start``, which is what the group is told.
        """
        held = self._survey(start)
        first, lost = resumed(self._read_of(start), held)
        _report(self._options, lost)
        self._publish(first)
        self._latest = to_json({where: has.end for where, has in held.items()})
        ends = ends_within(first, held, self._target)
        limits = NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        if not self._is_due(first, ends, limits):
            return start
        weights = self._brokers.bytes_each(held) if limits.max_bytes else {}
        return to_json(limited(first, ends, limits, weights))

    def reportLatestOffset(self) -> Told | None:  # noqa: N802 - Spark's name
        """Where everything ended when it was last asked, for Spark's progress reports."""
        return self._latest

    # --- what to read ---------------------------------------------------------------------------

    @speaking_plainly()
    def partitions(self, start: Told, end: Told) -> list[InputPartition]:
        """Decide what is read between two offsets, and by how many tasks."""
        last = offsets_of(end)
        held = {where: has for where, has in self._survey(start).items() if where in last}
        read = {where: at for where, at in self._read_of(start).items() if where in held}
        first, lost = resumed(read, held)
        gone = [Loss(*where, "it no longer exists") for where in last if where not in held]
        _report(self._options, [*lost, *gone])
        return _tasks(self._options, _columns(self._schema), first, last)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """What one task reads, in an executor."""
        return _read(partition)

    # --- progress -------------------------------------------------------------------------------

    @speaking_plainly()
    def commit(self, end: Told) -> None:
        """Spark will not ask for anything before ``end`` again."""
        self._publish(offsets_of(end))

    def stop(self) -> None:
        """Close the connections; Spark does not always say when a query ends."""
        if self._reached is not None:
            self._reached.close()
            self._reached = None

    # --- behind the scenes ----------------------------------------------------------------------

    @cached_property
    def _options(self) -> ReadOptions:
        _columns(self._schema)
        return parse_options(self._said, stream=True)

    @property
    def _brokers(self) -> Brokers:
        if self._reached is None:
            self._reached = Brokers(self._options)
        return self._reached

    def _survey(self, start: Told) -> dict[TopicPartition, Held]:
        """What all partitions hold now; after ``prepareForTriggerAvailableNow``, those of then."""
        for looks_left in reversed(range(_LOOKS)):
            topics = self._brokers.topics()
            self._notice_renewed(start, topics)
            if self._options.fail_on_data_loss:
                _check_exists(self._options, topics, read=start)
            wanted = _existing(self._options, topics)
            if self._target is not None:
                wanted = [where for where in wanted if where in self._target]
            try:
                self._there = self._brokers.held(wanted, self._read_of(start))
                break
            except UnknownTopicError:
                # Deleted between the two questions: the next look finds it gone.
                if not looks_left:
                    raise
        return self._there

    def _notice_renewed(self, start: Told, topics: Mapping[str, TopicDescription]) -> None:
        """A topic that has another id was deleted and made anew: its old offsets say nothing."""
        renewed = [
            name
            for name, topic in topics.items()
            if name in start and self._ids.get(name, topic.id) != topic.id
        ]
        self._ids.update({name: topic.id for name, topic in topics.items()})
        if renewed:
            self._renewed = (start, frozenset(renewed))
            why = "it was deleted and made anew while it was read"
            _report(self._options, [Loss(name, None, why) for name in renewed])

    def _read_of(self, start: Told) -> dict[TopicPartition, int]:
        """What has been read, but for topics that were made anew since."""
        since, renewed = self._renewed
        gone = renewed if start == since else ()
        return {where: at for where, at in offsets_of(start).items() if where.topic not in gone}

    def _is_due(self, first: Offsets, ends: Offsets, limits: Limits) -> bool:
        now = self._clock.monotonic()
        if self._target is None and limits.min_offsets:
            waited_ms = (now - self._planned_at) * 1_000
            if not is_enough(first, ends, limits, waited_ms):
                return False
        self._planned_at = now
        return True

    def _publish(self, offsets: Offsets) -> None:
        there = {where: at for where, at in offsets.items() if where in self._there}
        if self._options.group_id and there != self._published:
            self._brokers.publish(there)
            self._published = there


# --- what both readers share --------------------------------------------------------------------


def _existing(options: ReadOptions, topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    """The partitions to read that are there."""
    wanted = options.topics.partitions
    return [
        where
        for name, topic in sorted(topics.items())
        for where in (TopicPartition(name, one.partition) for one in topic.partitions)
        if not wanted or where in wanted
    ]


def _check_exists(
    options: ReadOptions, topics: Mapping[str, TopicDescription], read: Iterable[str] = ()
) -> None:
    """What the user named must be there, unless it was ``read`` before: then it is lost."""
    assigned = options.topics.partitions
    for name in options.topics.names or [where.topic for where in assigned]:
        if name not in topics and name not in read:
            raise UnknownTopicError(
                f"{'assign' if assigned else 'subscribe'}: topic {name} does not exist: look at "
                "the spelling with `waystation topic list`, or create it"
            )
    for where in assigned:
        if where.topic in topics and where.topic not in read:
            count = len(topics[where.topic].partitions)
            if where.partition >= count:
                raise BadOptionError(
                    f"assign: topic {where.topic} has no partition {where.partition}: its "
                    f"partitions are 0 to {count - 1}"
                )


def _found(
    brokers: Brokers, options: ReadOptions, position: Position, held: Mapping[TopicPartition, Held]
) -> dict[TopicPartition, int]:
    """The offsets that a position means now."""
    wanted = position.wanted(held)
    since = brokers.since(wanted) if position.by_time else {}
    late_is_an_error = options.late_is_an_error and position is options.starting
    return resolved(position, held, since, late_is_an_error=late_is_an_error)


def _report(options: ReadOptions, losses: Iterable[Loss]) -> None:
    for loss in losses:
        if options.fail_on_data_loss:
            raise DataLossError(*loss)
        _events.warning("data.lost", topic=loss.topic, partition=loss.partition, why=loss.why)


def _refuse_backwards(options: ReadOptions, start: Offsets, end: Offsets) -> None:
    """Where the user gave both offsets, an end before the start is a mistake."""
    if options.starting.each and options.ending.each:
        for where, first in start.items():
            if first > end[where]:
                raise BadOptionError(
                    f"{options.ending.option}: partition {where} would end at {end[where]}, before "
                    f"{options.starting.option} ({first}): exchange them"
                )


def _tasks(
    options: ReadOptions, columns: tuple[str, ...], first: Offsets, last: Offsets
) -> list[InputPartition]:
    plan = ReadPlan(
        options.bootstrap,
        columns,
        options.isolation,
        options.fail_on_data_loss,
        options.client,
        options.where,
    )
    spans = spans_between(first, last, options.min_partitions)
    return [SpanPartition(plan, span) for span in spans]


def _read(partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    # Spark makes up an empty partition where there is none.
    if isinstance(partition, SpanPartition):
        with speaking_plainly():
            yield from read_span(partition.plan, partition.span)


def _columns(schema: StructType) -> tuple[str, ...]:
    """The columns wanted, in their order; ``BadOptionError`` if one is not what it should be."""
    names = schema.fieldNames()
    if not names:
        raise BadOptionError("the schema has no column: name at least one, such as offset BIGINT")
    for field in schema.fields:
        if field.name not in WITH_HEADERS.fieldNames():
            problem = unknown_option(field.name, WITH_HEADERS.fieldNames())
            there = ", ".join(WITH_HEADERS.fieldNames())
            raise BadOptionError(
                f"{problem.replace('option', 'column', 1)} in the schema; there are {there}"
            )
        known = WITH_HEADERS[field.name]
        if field.dataType != known.dataType or not field.nullable:
            said = f"{field.dataType.simpleString()}{'' if field.nullable else ' not null'}"
            raise BadOptionError(
                f"column {field.name} of the schema is {said}, must be "
                f"{known.dataType.simpleString()}: cast it after the read"
            )
    if doubled := [name for name in names if names.count(name) > 1]:
        raise BadOptionError(f"column {doubled[0]} stands twice in the schema: leave one away")
    return tuple(names)

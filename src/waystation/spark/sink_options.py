"""The options of ``df.write`` and ``df.writeStream`` with ``format("waystation")``.

Spelled and checked as those of the source (``options.py``): Spark's own names are understood,
options of the producer behind the sink have ``kafka.`` in front, and one that nobody declared
is an error.  So is what would weaken the promise that was asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from waystation.client.options import ConnectionOptions, ProducerOptions
from waystation.client.settings import ProducerSettings
from waystation.model.settings import option, options_of
from waystation.spark.errors import BadOptionError
from waystation.spark.option_names import (
    CONNECTION,
    PATIENCE,
    Vocabulary,
    by_spelling,
    checked_bootstrap,
    connection_options,
    milliseconds,
    parsed,
)
from waystation.spark.sink_state import is_sink_id

__all__ = [
    "AT_LEAST_ONCE",
    "EXACTLY_ONCE",
    "SinkSettings",
    "WriteOptions",
    "parse_write_options",
]

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

_NO_BATCH: Final = -1


def _of_a_sink(sink_id: str) -> None:
    if sink_id and not is_sink_id(sink_id):
        raise ValueError(
            f"is {sink_id!r}, may have letters, digits, '.', '_' and '-', and 200 of them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """What a user may say, each as text; empty or -1 is as if it were not said."""

    bootstrap_servers: str = option(
        "",
        name="bootstrap.servers",
        doc="Brokers to begin with, `host:port`, several separated by commas. Required.",
    )
    topic: str = option(
        "",
        doc="The topic to write to. Without it each row needs one, in a column `topic`; with it "
        "such a column is not looked at. The topic must exist.",
    )
    delivery_guarantee: str = option(
        "",
        name="deliveryGuarantee",
        choices=("", EXACTLY_ONCE, AT_LEAST_ONCE),
        doc="`exactly-once`: a batch is seen whole and once, whatever dies; needs brokers with "
        "two-phase commit, which Waystation's are. `at-least-once`: rows are seen as they "
        "come, and again when a task is repeated. By default exactly-once for streams and where "
        "sinkId or batchId is given, else at-least-once.",
    )
    sink_id: str = option(
        "",
        name="sinkId",
        rule=_of_a_sink,
        doc="The name under which the brokers remember which batches were written: the same "
        "after every restart, and another for every query. By default that of the query's "
        "checkpoint.",
    )
    batch_id: int = option(
        _NO_BATCH,
        name="batchId",
        at_least=_NO_BATCH,
        doc="The number of this batch write within its sinkId: one that was written already is "
        "left out, and numbers only grow. For `foreachBatch` and for jobs that repeat a write.",
    )
    transaction_timeout: str = option(
        "15m",
        name="transactionTimeout",
        doc="How long one task may write before the broker gives it up: `90s`, `15m`. The "
        "broker's limit is `transaction.max.timeout.ms`. Readers of committed records wait for so "
        "long behind a task whose machine died, unless the query starts again.",
    )
    compression: str = option(
        "none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        doc="How batches of records are compressed; also written `kafka.compression.type`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What the user said, understood; it travels to the tasks.

    ``client`` holds the producer's own options as text, by their Kafka names.
    """

    bootstrap: str
    topic: str
    exactly_once: bool
    sink_id: str
    """Empty: the query's own id, which only its tasks know."""
    batch_id: int | None
    transaction_timeout_ms: int
    client: dict[str, str]

    @property
    def connection(self) -> ConnectionOptions:
        """For whoever only asks."""
        return connection_options({k: v for k, v in self.client.items() if k in CONNECTION})

    @property
    def patience_ms(self) -> int:
        """How long a broker may be away."""
        return self.connection["metadata_timeout_ms"]

    @property
    def producer(self) -> ProducerOptions:
        """For whoever writes."""
        found = ProducerOptions(transaction_timeout_ms=self.transaction_timeout_ms)
        found.update(_NAMES.understood(self.client))  # type: ignore[typeddict-item]  # its own names
        return found


def parse_write_options(texts: Mapping[str, str], *, stream: bool) -> WriteOptions:
    """Understand options as Spark hands them over; ``BadOptionError`` names the first problem."""
    said, client = _NAMES.sorted_out(texts)
    settings = SinkSettings(**{known.field: parsed(known, said[known]) for known in said})
    client = {"compression.type": settings.compression, **PATIENCE, **client}
    _NAMES.understood(client)
    exactly_once = _is_exact(settings, stream)
    return WriteOptions(
        bootstrap=checked_bootstrap(settings.bootstrap_servers),
        topic=settings.topic,
        exactly_once=exactly_once,
        sink_id=settings.sink_id,
        batch_id=None if settings.batch_id == _NO_BATCH else settings.batch_id,
        transaction_timeout_ms=_timeout_ms(settings),
        client=client,
    )


# --- names --------------------------------------------------------------------------------------

_PRODUCER: Final = {
    name: one for one in options_of(ProducerSettings) for name in str(one.kafka).split(", ")
}
_NAMES: Final = Vocabulary(
    known=by_spelling(SinkSettings),
    client={**CONNECTION, **_PRODUCER},
    kafka_names={
        "bootstrap.servers": "bootstrap.servers",
        "compression.type": "compression",
        "transaction.timeout.ms": "transactiontimeout",
    },
    instead={
        "path": "a topic is no path: name it with topic",
        "topics": "rows go to one topic, or to the one in their column topic",
        "subscribe": "name the topic to write to with topic",
        "includeheaders": "headers are written if there is a column headers",
        "transactional.id": "the sink names its transactions itself, after sinkId",
        "key.serializer": "keys are written as they are: cast them to binary or string",
        "value.serializer": "values are written as they are: cast them to binary or string",
    },
    ignored=("checkpointlocation", "queryname"),
    decided={"acks": ("all", "-1"), "enable.idempotence": ("true",)},
)


# --- meanings -----------------------------------------------------------------------------------


def _is_exact(settings: SinkSettings, stream: bool) -> bool:
    named = [
        name
        for name, is_said in (
            ("sinkId", settings.sink_id != ""),
            ("batchId", settings.batch_id != _NO_BATCH),
        )
        if is_said
    ]
    if stream and "batchId" in named:
        raise BadOptionError("batchId is for batch writes: Spark numbers the batches of a stream")
    if "batchId" in named and "sinkId" not in named:
        raise BadOptionError("batchId needs sinkId: say whose batch of that number it is")
    if not settings.delivery_guarantee:
        return stream or bool(named)
    exactly_once = settings.delivery_guarantee == EXACTLY_ONCE
    if named and not exactly_once:
        raise BadOptionError(
            f"{named[0]} is for {EXACTLY_ONCE}, and deliveryGuarantee is {AT_LEAST_ONCE}: leave "
            "one of them away"
        )
    return exactly_once


def _timeout_ms(settings: SinkSettings) -> int:
    timeout_ms = milliseconds("transactionTimeout", settings.transaction_timeout)
    if not timeout_ms:
        raise BadOptionError("transactionTimeout is 0: no task could write anything; try 15m")
    return timeout_ms

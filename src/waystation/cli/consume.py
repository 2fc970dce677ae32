"""``waystation consume``: messages out, as text, JSON or hexadecimal."""

import base64
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from waystation.cli.asking import patiently
from waystation.cli.options import bootstrap_option, json_option, parse_time
from waystation.cli.output import write

if TYPE_CHECKING:
    from waystation.client.consumer import Consumer, Start
    from waystation.client.message import Message
    from waystation.model.ids import TopicPartition
    from waystation.model.offsets import Offset

EXAMPLE = """
\b
Example:
  waystation consume orders --from-beginning --json
  waystation consume orders --follow
  waystation consume orders --offset -10 --partition 0
  waystation consume orders --timestamp 2026-01-31T09:30:00Z --count 100
  waystation consume orders --group billing
  waystation consume orders --from-beginning --where "value.country = 'DE'"
"""

_PATIENCE_MS = 1_000
_POLL_MS = 500
_POLL_MESSAGES = 1_000


def _checked_condition(_: click.Context, __: click.Parameter, where: str | None) -> str | None:
    if where is not None:
        from waystation.filters.selecting import Filter
        from waystation.model.errors import InvalidFilterError

        try:
            Filter(where)
        except InvalidFilterError as error:
            raise click.BadParameter(str(error)) from None
    return where


@click.command(epilog=EXAMPLE)
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start with the oldest message.")
@click.option(
    "--offset",
    type=int,
    metavar="N",
    help="Start at offset N; -N starts N before the end of each partition.",
)
@click.option("--timestamp", metavar="TIME", help="Start at a time: ISO 8601, or ms since 1970.")
@click.option(
    "--follow",
    "--tail",
    "follow",
    is_flag=True,
    help="Go on with new messages until Ctrl-C. Without a start, this is the default.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    callback=_checked_condition,
    help="Only messages of which this is true.",
)
@click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; again.")
@click.option("--group", "group_id", metavar="NAME", help="Read as a member of this group.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option("--timeout-ms", type=click.IntRange(min=0), help="Stop after this long without one.")
@click.option(
    "--format",
    "shape",
    type=click.Choice(["text", "json", "hex"]),
    default="text",
    show_default=True,
)
@click.option("--key-separator", help="Print KEY, this, VALUE.  [default: only the value]")
@click.option("--committed", is_flag=True, help="Leave out what transactions did not commit.")
@click.option("--rack", default="", help="Where this runs: read from a replica there, if possible.")
@bootstrap_option
@json_option
def consume(
    topic: str,
    from_beginning: bool,
    offset: int | None,
    timestamp: str | None,
    follow: bool,
    where: str | None,
    partitions: tuple[int, ...],
    group_id: str | None,
    count: int | None,
    timeout_ms: int | None,
    shape: str,
    key_separator: str | None,
    committed: bool,
    rack: str,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Print the messages of TOPIC.

    With a start it prints what is there and ends; --follow goes on. Without one it waits for
    new messages.

    With --group it shares TOPIC with the group's other members, goes on where the group has got
    to and commits what it has printed, until Ctrl-C, --count or --timeout-ms. A group that is new
    begins with new messages, or with the oldest if --from-beginning is given.

    --where takes an SQL condition over key, value, headers.NAME, timestamp, partition, offset and,
    where values are JSON, value.NAME; --count counts what it lets through, and a group goes past
    the rest.

    text writes values as they are, one per line, a tombstone as null. json writes the fields
    key, value, topic, partition, offset, timestamp, size and crc (and headers where there are
    any), one message per line; a key or value that is not UTF-8 is {"base64": "..."}. size is
    bytes of key and value, crc their CRC-32C. hex writes values as hexadecimal digits.
    """
    starts = [from_beginning, offset is not None, timestamp is not None].count(True)
    if starts > 1:
        raise click.UsageError("--from-beginning, --offset and --timestamp exclude each other")
    if group_id is not None and (partitions or offset is not None or timestamp is not None):
        raise click.UsageError(
            "a group knows where it is: --group excludes a start and --partition"
        )
    time = None if timestamp is None else parse_time(timestamp)
    import asyncio

    from waystation.client.consumer import Consumer
    from waystation.runtime.loops import run

    show = shown("json" if as_json else shape, key_separator)

    isolation = "read_committed" if committed else "read_uncommitted"

    async def work_in_group() -> None:
        joined = asyncio.Event()
        async with Consumer(
            group_id,
            topic,
            bootstrap=bootstrap,
            auto_offset_reset="earliest" if from_beginning else "latest",
            on_assigned=lambda _: joined.set(),
            where=where,
            isolation=isolation,
            client_rack=rack,
            metadata_timeout_ms=_PATIENCE_MS,
        ) as consumer:
            await _print(consumer, show, count, timeout_ms, None, joined.is_set)

    async def work() -> None:
        start: Start = "latest" if not starts else "earliest" if time is None else time
        async with Consumer(
            bootstrap=bootstrap,
            start=start,
            where=where,
            isolation=isolation,
            client_rack=rack,
            metadata_timeout_ms=_PATIENCE_MS,
        ) as consumer:
            chosen = await _chosen(consumer, topic, partitions)
            await patiently(partial(consumer.assign, chosen))
            if offset is not None:
                await patiently(partial(_seek, consumer, chosen, offset))
            ends = None if follow or not starts else await patiently(consumer.end_offsets)
            await _print(consumer, show, count, timeout_ms, ends)

    run(work() if group_id is None else work_in_group())


async def _chosen(
    consumer: "Consumer", topic: str, partitions: tuple[int, ...]
) -> list["TopicPartition"]:
    from waystation.client.errors import NoSuchPartitionError
    from waystation.model.ids import TopicPartition

    every = await consumer.partitions_of(topic)
    chosen = [TopicPartition(topic, one) for one in partitions] or list(every)
    for where in chosen:
        if where not in every:
            raise NoSuchPartitionError(where, len(every))
    return chosen


async def _seek(consumer: "Consumer", chosen: list["TopicPartition"], offset: int) -> None:
    """Go to an offset, or so many before the end; outside a partition, to its nearer end."""
    starts = await consumer.beginning_offsets(chosen)
    ends = await consumer.end_offsets(chosen)
    for where in chosen:
        wanted = offset if offset >= 0 else ends[where] + offset
        consumer.seek(where, min(max(wanted, starts[where]), ends[where]))


async def _print(
    consumer: "Consumer",
    show: Callable[["Message"], bytes],
    count: int | None,
    timeout_ms: int | None,
    ends: dict["TopicPartition", "Offset"] | None,
    begun: Callable[[], bool] = lambda: True,
) -> None:
    """Print until ``count`` messages, the ``ends``, or a silence of ``timeout_ms`` once begun."""
    left = count
    silent_ms = 0
    while ends is None or any(consumer.position(where) < end for where, end in ends.items()):
        limit = _POLL_MESSAGES if left is None else min(left, _POLL_MESSAGES)
        wait_ms = _POLL_MS if timeout_ms is None else min(_POLL_MS, timeout_ms - silent_ms)
        messages = await patiently(partial(consumer.poll, wait_ms, limit))
        if ends is not None:
            messages = [one for one in messages if one.offset < _end_for(ends, one)]
        if messages:
            write(b"".join(map(show, messages)))
            silent_ms = 0
        elif begun():
            silent_ms += wait_ms
            if timeout_ms is not None and silent_ms >= timeout_ms:
                return
        if left is not None:
            left -= len(messages)
            if left <= 0:
                return


def _end_for(ends: dict["TopicPartition", "Offset"], message: "Message") -> "Offset":
    from waystation.model.ids import TopicPartition

    return ends[TopicPartition(message.topic, message.partition)]


# --- shapes ---------------------------------------------------------------------------------


def shown(shape: str, separator: str | None = None) -> Callable[["Message"], bytes]:
    """How a message is printed."""
    if shape == "json":
        return _json
    encode = _hexadecimal if shape == "hex" else _text
    between = None if separator is None else separator.encode()

    def show(message: "Message") -> bytes:
        value = encode(message.value)
        if between is not None:
            value = encode(message.key) + between + value
        return value + b"\n"

    return show


def _text(payload: bytes | None) -> bytes:
    return b"null" if payload is None else payload


def _hexadecimal(payload: bytes | None) -> bytes:
    return b"null" if payload is None else payload.hex().encode()


def _json(message: "Message") -> bytes:
    import msgspec

    fields: dict[str, object] = {
        "key": readable(message.key),
        "value": readable(message.value),
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "size": message.size,
        "crc": message.crc,
    }
    if message.headers:
        fields["headers"] = [[name, readable(content)] for name, content in message.headers]
    return msgspec.json.encode(fields) + b"\n"


def readable(payload: bytes | None) -> str | dict[str, str] | None:
    """Text where it is text; else base64, in an object that cannot be mistaken for text."""
    if payload is None:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}

"""``waystation produce``: lines in, messages out."""

import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from waystation.cli.options import bootstrap_option, json_option, pairs
from waystation.cli.output import print_json, say
from waystation.cli.progress import progress as bar

if TYPE_CHECKING:
    from waystation.client.options import ProducerOptions
    from waystation.client.outgoing import Delivered
    from waystation.client.producer import Producer

EXAMPLE = """
\b
Example:
  echo 'customer-7:{"amount": 12}' | waystation produce orders --key-separator :
  waystation produce orders --file orders.txt --compression zstd --rate 1000
  waystation produce orders --value hello --count 1000
"""

Shape = Callable[[bytes], tuple[bytes | None, bytes | None]]
"""Makes key and value of a line."""

_PATIENCE_MS = 3_000
_GIVE_UP_MS = 30_000
_TURN = 250
_AHEAD_S = 0.001


@click.command(epilog=EXAMPLE)
@click.argument("topic")
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read lines from this file instead of standard input.",
)
@click.option("--value", help="Send this instead of reading lines; --count times.")
@click.option("--key", help="The key of every message.")
@click.option("--key-separator", help="A line is KEY, this, VALUE.")
@click.option("--tombstones", is_flag=True, help="Send an empty value as a tombstone (null).")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; again.")
@click.option("--partition", type=int, help="The partition.  [default: by key, else spread]")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="[default: none, or as the profile has it]",
)
@click.option(
    "--profile",
    type=click.Choice(["balanced", "latency", "throughput"]),
    default="balanced",
    show_default=True,
    help="What sending is tuned for: how long batches wait, how large they grow, compression.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Who must have a message: nobody, the leader, all in-sync replicas.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="At most this many messages a second.",
)
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Store nothing twice, however often the command is run: a single --value under KEY, "
    "lines under KEY.0, KEY.1 and so on.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option(
    "--max-bytes", type=int, default=1 << 20, show_default=True, help="The largest message."
)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="A progress bar on standard error.  [default: on a terminal]",
)
@bootstrap_option
@json_option
def produce(
    topic: str,
    path: Path | None,
    value: str | None,
    key: str | None,
    key_separator: str | None,
    tombstones: bool,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str | None,
    profile: str,
    acks: str,
    rate: float | None,
    idempotency_key: str | None,
    count: int | None,
    max_bytes: int,
    progress: bool | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send each line of input as a message to TOPIC.

    Ends with an error if any message was not acknowledged.  With --json, prints where each
    message went, one object per line.
    """
    if value is not None and path is not None:
        raise click.UsageError("--value and --file exclude each other")
    if idempotency_key is not None and acks != "all":
        raise click.UsageError(f"--idempotency-key needs --acks all, not {acks}")
    from waystation.client.producer import Producer
    from waystation.runtime.loops import run

    numbered = value is None or count is not None
    shape = _shape(key, key_separator, tombstones)
    listed = tuple((name, text.encode()) for name, text in pairs(headers, "--header").items())
    lines = _lines(path, value, count)
    options: ProducerOptions = {
        "acks": acks,
        "profile": profile,
        "metadata_timeout_ms": _PATIENCE_MS,
        "delivery_timeout_ms": _GIVE_UP_MS,
        "max_request_bytes": max_bytes,
    }
    if compression is not None:
        options["compression"] = compression

    async def work() -> int:
        async with Producer(bootstrap, **options) as producer:
            sending = _Sending(producer, topic, listed, partition, shape, rate, as_json)
            if idempotency_key is not None:
                sending.once = partial(_once_key, idempotency_key, numbered)
            watched = sys.stderr.isatty() and not sys.stdin.isatty()
            with bar("sending", count, wanted=watched if progress is None else progress) as advance:
                await sending.send_all(lines, count, advance)
            return sending.sent

    began = time.monotonic()
    sent = run(work())
    if not as_json:
        took_s = time.monotonic() - began
        say(f"sent {sent} message{'' if sent == 1 else 's'} to {topic} in {took_s:.2f} s")


class _Sending:
    """Submits lines and watches that each is acknowledged."""

    def __init__(
        self,
        producer: "Producer",
        topic: str,
        headers: tuple[tuple[str, bytes], ...],
        partition: int | None,
        shape: Shape,
        rate: float | None,
        as_json: bool,
    ) -> None:
        self.sent = 0
        self._producer, self._topic = producer, topic
        self._headers, self._partition = headers, partition
        self._shape, self._rate, self._as_json = shape, rate, as_json
        self.once: Callable[[int], str] | None = None
        """Makes idempotency keys of the numbers of messages."""
        self._unanswered: deque[Delivered] = deque()
        self._began = time.monotonic()

    async def send_all(
        self,
        chunks: AsyncIterator[list[bytes]],
        count: int | None,
        advance: Callable[[int], None],
    ) -> None:
        """Send up to ``count`` lines, and wait until all of them are acknowledged."""
        while (lines := await self._next(chunks)) is not None:
            wanted = lines if count is None else lines[: count - self.sent]
            for start in range(0, len(wanted), _TURN):
                turn = wanted[start : start + _TURN]
                for line in turn:
                    await self._send(line)
                await self._producer.drain()
                self._take_answers()
                advance(len(turn))
            if count is not None and self.sent >= count:
                break
        while self._unanswered:
            # Brokers answer in any order; to wait for one that is answered would never yield.
            await self._unanswered[0]
            self._take_answers()

    async def _next(self, chunks: AsyncIterator[list[bytes]]) -> list[bytes] | None:
        """The next lines, ``None`` at the end; meanwhile answers are taken as they come."""
        import asyncio

        coming = asyncio.ensure_future(anext(chunks, None))
        try:
            while self._unanswered and not coming.done():
                waiting = (coming, self._unanswered[0])
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self._take_answers()
            return await coming
        finally:
            coming.cancel()

    async def _send(self, line: bytes) -> None:
        from waystation.client.errors import MessageRefusedError
        from waystation.model.errors import MessageTooLargeError

        if self._rate is not None:
            await self._pace(self._rate)
        key, value = self._shape(line)
        if self.once is not None:
            self._send_once(self.once(self.sent), key, value)
            return
        try:
            self._unanswered.append(
                self._producer.submit(
                    self._topic, value, key=key, headers=self._headers, partition=self._partition
                )
            )
        except MessageTooLargeError as error:
            raise MessageRefusedError(
                f"message {self.sent + 1} takes {error.size_bytes} bytes, the limit is "
                f"{error.limit_bytes}: send less, or raise --max-bytes here and "
                f"max.message.bytes of topic {self._topic}"
            ) from error
        self.sent += 1

    def _send_once(self, once: str, key: bytes | None, value: bytes | None) -> None:
        import asyncio

        sending = self._producer.send(
            self._topic,
            value,
            key=key,
            headers=self._headers,
            partition=self._partition,
            idempotency_key=once,
        )
        self._unanswered.append(asyncio.ensure_future(sending))
        self.sent += 1

    async def _pace(self, rate: float) -> None:
        """Wait until the next message is due."""
        import asyncio

        ahead_s = self._began + self.sent / rate - time.monotonic()
        if ahead_s > _AHEAD_S:
            self._take_answers()
            await asyncio.sleep(ahead_s)

    def _take_answers(self) -> None:
        """Raise the first failure; with --json, print where messages went."""
        while self._unanswered and self._unanswered[0].done():
            told = self._unanswered.popleft().result()
            if self._as_json:
                replayed = {} if self.once is None else {"replayed": told.replayed}
                print_json({**told._asdict(), **replayed})


def _once_key(key: str, numbered: bool, number: int) -> str:
    return f"{key}.{number}" if numbered else key


def _shape(key: str | None, separator: str | None, tombstones: bool) -> Shape:
    fixed = None if key is None else key.encode()
    between = None if separator is None else separator.encode()

    def shape(line: bytes) -> tuple[bytes | None, bytes | None]:
        own, value = fixed, line
        if between is not None:
            found, separated, rest = line.partition(between)
            if separated:
                own, value = found, rest
        return own, None if tombstones and not value else value

    return shape


def _lines(path: Path | None, value: str | None, count: int | None) -> AsyncIterator[list[bytes]]:
    from waystation.cli.lines import lines_of, lines_of_stdin

    if value is not None:
        return _repeated(value.encode(), count or 1)
    return lines_of_stdin() if path is None else lines_of(path)


async def _repeated(line: bytes, count: int) -> AsyncIterator[list[bytes]]:
    while count > 0:
        yield [line] * min(count, _TURN)
        count -= _TURN

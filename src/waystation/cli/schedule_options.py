"""What the commands around schedules share: times as people type and read them, and sending."""

import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from waystation.cli.options import pairs, parse_duration, parse_time
from waystation.cli.output import shown_bytes

if TYPE_CHECKING:
    from waystation.client.outgoing import RecordMetadata

__all__ = ["due_in", "moment", "send_options", "sent_messages", "shown_bytes_of", "shown_time"]

F = TypeVar("F", bound=Callable[..., Any])

_PATIENCE_MS = 3_000
_GIVE_UP_MS = 30_000
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_AT_ONCE = 500


def moment(text: str) -> int:
    """Milliseconds since 1970 from a moment, or from a duration that begins now."""
    try:
        ahead = parse_duration(text.removeprefix("+"))
    except click.UsageError:
        try:
            return parse_time(text)
        except click.UsageError:
            raise click.UsageError(
                f"{text!r} is no time: give ISO 8601, e.g. 2027-01-31T09:30:00Z, ms since 1970, "
                "or a duration from now on, e.g. 10m"
            ) from None
    return int((time.time() + ahead.total_seconds()) * 1_000)


def shown_time(moment_ms: int) -> str:
    """A moment in this machine's time zone; its number where no calendar reaches."""
    try:
        found = datetime.fromtimestamp(moment_ms / 1_000).astimezone()
    except (OverflowError, OSError, ValueError):
        return str(moment_ms)
    return found.isoformat(timespec="milliseconds" if moment_ms % 1_000 else "seconds")


def due_in(moment_ms: int) -> str:
    """How long until then, in its two largest units: ``3d4h``, ``90s`` as ``1m30s``."""
    seconds = round(moment_ms / 1_000 - time.time())
    if seconds <= 0:
        return "now"
    said = ""
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            whole = bool(said)
            said += f"{count}{unit}"
            if whole:
                break
        elif said:
            break
    return said


def shown_bytes_of(count: int | None) -> str:
    """A size for people; a value that is null has none."""
    return "-" if count is None else shown_bytes(count)


def send_options(command: F) -> F:
    """What is sent: one value, or each line of a file or of standard input."""
    for option in (
        click.option(
            "--partition", type=int, help="The partition.  [default: by key, else spread]"
        ),
        click.option(
            "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; again."
        ),
        click.option("--key", help="The key of every message."),
        click.option(
            "--file",
            "path",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Send each line of this file.",
        ),
        click.option("--value", help="Send this instead of each line of standard input."),
    ):
        command = option(command)
    return command


def sent_messages(
    topic: str,
    timing: dict[str, Any],
    *,
    bootstrap: str,
    value: str | None,
    path: Path | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
) -> list["RecordMetadata"]:
    """Send, and wait until the broker keeps all of it."""
    if value is not None and path is not None:
        raise click.UsageError("--value and --file exclude each other")
    import asyncio

    from waystation.client.producer import Producer
    from waystation.client.timing import timing_headers
    from waystation.runtime.loops import run

    timing_headers(**timing)  # mistakes are told before anything is read
    listed = pairs(headers, "--header")

    async def work() -> list["RecordMetadata"]:
        sent: list[RecordMetadata] = []
        async with Producer(
            bootstrap, metadata_timeout_ms=_PATIENCE_MS, delivery_timeout_ms=_GIVE_UP_MS
        ) as producer:
            async for lines in _lines(value, path):
                for at in range(0, len(lines), _AT_ONCE):
                    sent += await asyncio.gather(
                        *(
                            producer.send(
                                topic, one, key=key, headers=listed, partition=partition, **timing
                            )
                            for one in lines[at : at + _AT_ONCE]
                        )
                    )
        return sent

    return run(work())


async def _lines(value: str | None, path: Path | None) -> AsyncIterator[list[bytes]]:
    from waystation.cli.lines import lines_of, lines_of_stdin

    if value is not None:
        yield [value.encode()]
        return
    async for lines in lines_of_stdin() if path is None else lines_of(path):
        yield lines

"""Where ``waystation group reset`` takes a group to, and which of its partitions."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from waystation.cli.options import parse_duration, parse_time

if TYPE_CHECKING:
    from waystation.client.resets import ResetTo


def place(places: dict[str, Any], name: str) -> "ResetTo":
    """The one place that was given."""
    given = {
        option: value
        for option, value in places.items()
        if value is not None and value is not False
    }
    if len(given) != 1:
        raise click.UsageError(
            "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset, --to-time, "
            "--by-duration, --shift-by or --from-file"
        )
    ((option, value),) = given.items()
    match option:
        case "to_offset":
            return int(value)
        case "to_time":
            return datetime.fromtimestamp(parse_time(value) / 1_000, UTC)
        case "by_duration":
            return parse_duration(value)
        case "shift_by":
            from waystation.client.resets import By

            return By(value)
        case "from_file":
            from waystation.cli.offset_files import read_offsets

            return read_offsets(value, name)
        case _:
            return option.removeprefix("to_")


def topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    """``orders`` or ``orders:0,2``."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    if not all(one.isdigit() for one in numbers.split(",")):
        raise click.UsageError(f"--topic {text!r}: must be NAME or NAME:PARTITION,PARTITION")
    return topic, [int(one) for one in numbers.split(",")]

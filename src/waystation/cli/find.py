"""``waystation find``: the messages of one key."""

import base64
import binascii
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from waystation.cli.options import bootstrap_option, example, json_option, parse_duration

if TYPE_CHECKING:
    from waystation.client.admin import Admin


@click.command(
    epilog=example(
        "waystation topic create inbox --partitions 8 --config index.keys=true\n"
        "  waystation find --key user-7 inbox\n"
        "  waystation find --key user-7 inbox --after 4711 --limit 10 --wait 30s --json\n"
        "  waystation find --key-base64 //79 inbox --everywhere"
    )
)
@click.argument("topic")
@click.option("--key", help="Whose messages.")
@click.option("--key-base64", help="Instead of --key: any bytes.")
@click.option("--from", "first", type=click.IntRange(0), help="The offset to begin at.")
@click.option("--after", type=click.IntRange(0), help="The offset to begin behind.")
@click.option("--limit", type=click.IntRange(1), help="How many at most.  [default: all]")
@click.option("--wait", default="0s", help="For how long to wait for more, such as 30s.")
@click.option("--partition", type=click.IntRange(0), help="Look there, not where the key belongs.")
@click.option("--everywhere", is_flag=True, help="Look in all partitions, one after the other.")
@bootstrap_option
@json_option
def find(
    topic: str,
    key: str | None,
    key_base64: str | None,
    first: int | None,
    after: int | None,
    limit: int | None,
    wait: str,
    partition: int | None,
    everywhere: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Print the messages of one key in TOPIC, the oldest first, found by its index of keys.

    The topic must have one: waystation topic alter TOPIC --set index.keys=true

    A key belongs where Kafka's default partitioner puts it (murmur2). librdkafka and what is
    built on it have another default: let them set partitioner=murmur2_random, or find what they
    sent with --everywhere.
    """
    from waystation.cli.asking import with_admin
    from waystation.cli.consume import shown
    from waystation.cli.output import counted, say, write

    wanted, show = _key(key, key_base64), shown("json" if as_json else "value")
    start = _start(first, after)
    wait_ms = int(parse_duration(wait).total_seconds() * 1_000)
    if everywhere and (partition is not None or start or wait_ms):
        raise click.UsageError("--everywhere goes without --partition, --from, --after and --wait")

    async def work(admin: "Admin") -> int:
        number, finder = 0, admin.finder(topic)
        places: Sequence[int | None] = [partition]
        if everywhere:
            places = range(len((await admin.describe_topic(topic)).partitions))
        for place in places:
            if limit is not None and number >= limit:
                break
            left = None if limit is None else limit - number
            found = finder.find(wanted, offset=start, limit=left, wait_ms=wait_ms, partition=place)
            async for message in found:
                number += 1
                write(show(message))
        return number

    number = with_admin(bootstrap, work)
    if not as_json:
        say(f"{counted(number, 'message')} of {wanted.decode(errors='replace')} in {topic}")


def _key(key: str | None, key_base64: str | None) -> bytes:
    if (key is None) == (key_base64 is None):
        raise click.UsageError("give the key: --key or --key-base64, one of them")
    if key is not None:
        return os.fsencode(key)  # as it was typed, be it text or not
    try:
        return base64.b64decode(key_base64 or "", validate=True)
    except binascii.Error as error:
        raise click.BadParameter(
            f"this is not base64: {error}", param_hint="--key-base64"
        ) from None


def _start(first: int | None, after: int | None) -> int:
    if first is not None and after is not None:
        raise click.UsageError("--from and --after exclude each other")
    return first or 0 if after is None else after + 1

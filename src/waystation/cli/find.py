"""``waystation find``: the messages of one key."""

from typing import TYPE_CHECKING

import click

from waystation.cli.options import bootstrap_option, example, json_option, parse_duration

if TYPE_CHECKING:
    from waystation.client.admin import Admin


@click.command(
    epilog=example(
        "waystation topic create inbox --partitions 8 --config index.keys=true\n"
        "  waystation find --key user-7 inbox\n"
        "  waystation find --key user-7 inbox --after 4711 --limit 10 --wait 30s --json"
    )
)
@click.argument("topic")
@click.option("--key", required=True, help="Whose messages.")
@click.option("--from", "first", type=click.IntRange(0), default=0, help="The offset to begin at.")
@click.option("--after", type=click.IntRange(0), help="The offset to begin behind.")
@click.option("--limit", type=click.IntRange(1), help="How many at most.  [default: all]")
@click.option("--wait", default="0s", help="For how long to wait for more, such as 30s.")
@click.option("--partition", type=click.IntRange(0), help="Look there, not where the key belongs.")
@bootstrap_option
@json_option
def find(
    topic: str,
    key: str,
    first: int,
    after: int | None,
    limit: int | None,
    wait: str,
    partition: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Print the messages of one key in TOPIC, the oldest first, found by its index of keys.

    The topic must have one: waystation topic alter TOPIC --set index.keys=true
    """
    from waystation.cli.asking import with_admin
    from waystation.cli.consume import shown
    from waystation.cli.output import counted, say, write

    show = shown("json" if as_json else "value")
    start = first if after is None else after + 1
    wait_ms = int(parse_duration(wait).total_seconds() * 1_000)

    async def work(admin: "Admin") -> int:
        number = 0
        found = admin.finder(topic).find(
            key, offset=start, limit=limit, wait_ms=wait_ms, partition=partition
        )
        async for message in found:
            number += 1
            write(show(message))
        return number

    number = with_admin(bootstrap, work)
    if not as_json:
        say(f"{counted(number, 'message')} of {key} in {topic}")

"""``waystation queue dead``: list, show, redrive, status, cancel."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from waystation.cli.asking import confirm, with_admin
from waystation.cli.options import (
    bootstrap_option,
    example,
    json_option,
    parse_duration,
    parse_time,
    yes_option,
)
from waystation.cli.output import counted, print_json, print_table, say
from waystation.cli.progress import progress
from waystation.cli.queue_options import group_option
from waystation.cli.schedule_options import shown_time

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.dead_letters import DeadLetter, DeadLetters, Redrive

F = TypeVar("F", bound=Callable[..., Any])

_LISTED = 100
_LOOK_EVERY_S = 0.3
_TITLES = ("ID", "DIED", "FROM", "GROUP", "REASON", "TRIES", "KEY", "SENT BACK")
_REDRIVE_TITLES = ("PARTITION", "ID", "STATE", "AT", "END", "SENT BACK", "REFUSED", "PROBLEM")


@click.group(
    epilog=example(
        "waystation queue dead list orders --since 1h\n"
        "  waystation queue dead redrive orders --where \"key = 'k7'\" --rate 50"
    )
)
def dead() -> None:
    """What a queue has given up: look at it, and send it back.

    A message that was rejected, or delivered too often, is moved to the dead-letter topic that the
    queue's group names, with headers that say why and from where.
    """


def _choosing(command: F) -> F:
    """Which dead letters are meant."""
    for option in (
        click.option("--where", default="", metavar="CONDITION", help="Only those it is true of."),
        click.option("--before", metavar="TIME", help="Dead before this time."),
        click.option("--since", metavar="TIME", help="Dead at this time or later: ISO, ms, or 2h."),
        click.option("--until-offset", type=click.IntRange(min=0), help="Before this offset."),
        click.option("--from-offset", type=click.IntRange(min=0), default=0, help="From there on."),
        click.option("--partition", type=click.IntRange(min=0), help="Only of this partition."),
    ):
        command = option(command)
    return _naming(command)


def _naming(command: F) -> F:
    """Which dead-letter topic is meant."""
    named = click.option("--topic", help="The dead-letter topic.  [default: as the group says]")
    return group_option(named(command))


# --- looking --------------------------------------------------------------------------------


@dead.command(
    "list",
    epilog=example(
        "waystation queue dead list orders --since 2h --where \"value.country = 'DE'\"\n"
        "  waystation queue dead list orders --all --json"
    ),
)
@click.argument("name")
@_choosing
@click.option("--all", "also_redriven", is_flag=True, help="Those too that were sent back.")
@click.option("--limit", type=click.IntRange(min=1), default=_LISTED, show_default=True)
@bootstrap_option
@json_option
def list_dead(
    name: str,
    group: str | None,
    topic: str | None,
    also_redriven: bool,
    limit: int,
    bootstrap: str,
    as_json: bool,
    **chosen: Any,
) -> None:
    """List the dead letters of the queue NAME, the oldest of each partition first."""
    wanted = _wanted(**chosen)

    async def work(admin: "Admin") -> tuple[str, list["DeadLetter"], bool]:
        letters = await _letters(admin, name, group, topic)
        found: list[DeadLetter] = []
        async for one in letters.all(**wanted, redriven=also_redriven):
            if len(found) == limit:
                return letters.topic, found, True
            found.append(one)
        return letters.topic, found, False

    where, found, is_more = with_admin(bootstrap, work)
    if as_json:
        for one in found:
            print_json(_described(one))
    elif found:
        print_table(_TITLES, map(_row, found))
    if not as_json or is_more:
        more = "; there are more, see --limit" if is_more else ""
        say(f"{counted(len(found), 'dead letter')} in {where}{more}")


@dead.command(epilog=example("waystation queue dead show orders 0-17"))
@click.argument("name")
@click.argument("letter", metavar="ID")
@_naming
@bootstrap_option
@json_option
def show(
    name: str, letter: str, group: str | None, topic: str | None, bootstrap: str, as_json: bool
) -> None:
    """Show one dead letter of the queue NAME: its headers and its value."""
    from waystation.client.schedule_descriptions import MessageId

    place = MessageId.of(letter)

    async def work(admin: "Admin") -> "DeadLetter":
        return await (await _letters(admin, name, group, topic)).get(*place)

    found = with_admin(bootstrap, work)
    if as_json:
        print_json(_described(found, with_value=True))
        return
    message, origin = found.message, found.origin
    if origin is not None:
        say(
            f"{place}: {origin.reason or 'dead'} at delivery {origin.deliveries} to "
            f"{origin.group}, {shown_time(origin.died_at)}"
        )
        say(f"from {origin.source} at offset {origin.offset}, sent {shown_time(origin.timestamp)}")
    say(f"key {_text(message.key)}{', sent back' if found.is_redriven else ''}")
    for header, value in message.headers:
        say(f"  {header}: {_text(value)}")
    click.echo("" if message.value is None else _text(message.value))


# --- sending back ---------------------------------------------------------------------------


@dead.command(
    epilog=example(
        "waystation queue dead redrive orders\n"
        "  waystation queue dead redrive orders --since 2h --rate 100 --yes\n"
        "  waystation queue dead redrive orders --where \"key LIKE 'eu-%'\" --to orders.repair"
    )
)
@click.argument("name")
@_choosing
@click.option("--to", default="", metavar="TOPIC", help="  [default: where each one came from]")
@click.option("--rate", type=click.FloatRange(min=0), default=0.0, help="Messages per second.")
@click.option("--id", "redrive_id", help="What to call it: giving it again asks how it goes.")
@click.option("--no-wait", is_flag=True, help="Return when the brokers have the order.")
@yes_option
@bootstrap_option
@json_option
def redrive(
    name: str,
    group: str | None,
    topic: str | None,
    to: str,
    rate: float,
    redrive_id: str | None,
    no_wait: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Send dead letters of the queue NAME back, each once.

    Each goes to the partition it came from, those of one key in their order, and is not listed any
    more. What was sent back before is not sent again. The brokers go on by themselves if this
    command ends, or one of them does.
    """
    import secrets

    order = redrive_id or secrets.token_hex(4)
    wanted = _wanted(**chosen)
    partition = wanted.pop("partition")
    confirm(f"Send dead letters of {name} back{f' to {to}' if to else ''}?", yes)

    async def work(admin: "Admin") -> list["Redrive"]:
        letters = await _letters(admin, name, group, topic)
        numbers = await letters.partitions(partition)
        begun = await letters.redrive(
            order,
            partitions=numbers,
            to=to,
            rate=rate,
            **{**wanted, "where": wanted["where"] or ""},
        )
        return begun if no_wait else await _watch(letters, numbers, order, begun, not as_json)

    found = with_admin(bootstrap, work)
    _print_redrives(found, as_json)
    if not as_json:
        sent = sum(one.moved for one in found)
        say(f"redrive {order}: {counted(sent, 'dead letter')} sent back")
    failed = [one for one in found if one.state == "failed"]
    if failed:
        raise click.ClickException(f"partition {failed[0].partition}: {failed[0].problem}")


async def _watch(
    letters: "DeadLetters", numbers: list[int], order: str, begun: list["Redrive"], wanted: bool
) -> list["Redrive"]:
    import asyncio

    total = sum(one.end - one.first for one in begun)
    with progress("looking at dead letters", total, wanted=wanted) as advance:
        before = 0
        while True:
            found = [one for one in await letters.progress(numbers) if one.id == order]
            now = sum(one.cursor - one.first for one in found)
            advance(max(now - before, 0))
            before = max(now, before)
            if not any(one.is_running for one in found):
                return found
            await asyncio.sleep(_LOOK_EVERY_S)


@dead.command(epilog=example("waystation queue dead status orders"))
@click.argument("name")
@_naming
@bootstrap_option
@json_option
def status(name: str, group: str | None, topic: str | None, bootstrap: str, as_json: bool) -> None:
    """Say how far the last redrive of the queue NAME got."""

    async def work(admin: "Admin") -> list["Redrive"]:
        return await (await _letters(admin, name, group, topic)).progress()

    _print_redrives(with_admin(bootstrap, work), as_json)


@dead.command(epilog=example("waystation queue dead cancel orders 5f2c9a01"))
@click.argument("name")
@click.argument("redrive_id", metavar="ID")
@_naming
@bootstrap_option
@json_option
def cancel(
    name: str, redrive_id: str, group: str | None, topic: str | None, bootstrap: str, as_json: bool
) -> None:
    """Stop the redrive ID of the queue NAME; what was sent back stays so."""

    async def work(admin: "Admin") -> list["Redrive"]:
        return await (await _letters(admin, name, group, topic)).cancel(redrive_id)

    found = with_admin(bootstrap, work)
    if not found:
        raise click.ClickException(
            f"there is no redrive {redrive_id!r} of {name}: see `waystation queue dead status`"
        )
    _print_redrives(found, as_json)


# --- parts ----------------------------------------------------------------------------------


async def _letters(
    admin: "Admin", name: str, group: str | None, topic: str | None
) -> "DeadLetters":
    """The dead letters of a queue: in the topic that is named, or that its group names."""
    if topic is None:
        configs = await admin.describe_configs(group=group or name)
        topic = configs["share.dead.letter.topic"].value or None
        if topic is not None and not await admin.dead_letters(topic).exists():
            say(f"nothing is dead yet: {topic} is made when the first message dies")
            raise click.exceptions.Exit(0)
    if topic is None:
        raise click.UsageError(
            f"the group {group or name} has no dead-letter topic: give it one with `waystation "
            f"queue create {name} --dead-letters TOPIC`, or name it with --topic"
        )
    return admin.dead_letters(topic)


def _wanted(
    partition: int | None,
    from_offset: int,
    until_offset: int | None,
    since: str | None,
    before: str | None,
    where: str,
) -> dict[str, Any]:
    from waystation.filters.selecting import Filter
    from waystation.model.errors import InvalidFilterError

    if where:
        try:
            Filter(where)
        except InvalidFilterError as error:
            raise click.UsageError(str(error)) from None
    return {
        "partition": partition,
        "first": from_offset,
        "end": until_offset,
        "since": None if since is None else _moment(since),
        "until": None if before is None else _moment(before),
        "where": where or None,
    }


def _moment(text: str) -> int:
    """Milliseconds since 1970 from a moment, or from how long ago it was."""
    try:
        return int((time.time() - parse_duration(text).total_seconds()) * 1_000)
    except click.UsageError:
        return parse_time(text)


def _row(one: "DeadLetter") -> tuple[object, ...]:
    message, origin = one.message, one.origin
    place = f"{message.partition}-{message.offset}"
    sent_back = "yes" if one.is_redriven else "-"
    if origin is None:
        return (place, shown_time(message.timestamp), "?", "?", "?", "?", _text(message.key), "-")
    source = f"{origin.source.topic} {origin.source.partition}-{origin.offset}"
    died = shown_time(origin.died_at)
    tries = origin.deliveries
    return (place, died, source, origin.group, origin.reason, tries, _text(message.key), sent_back)


def _described(one: "DeadLetter", *, with_value: bool = False) -> dict[str, Any]:
    message, origin = one.message, one.origin
    found: dict[str, Any] = {
        "id": f"{message.partition}-{message.offset}",
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "key": None if message.key is None else _text(message.key),
        "redriven": one.is_redriven,
    }
    if origin is not None:
        found |= {
            "source_topic": origin.source.topic,
            "source_partition": origin.source.partition,
            "source_offset": origin.offset,
            "sent_ms": origin.timestamp,
            "group": origin.group,
            "reason": origin.reason,
            "deliveries": origin.deliveries,
            "died_ms": origin.died_at,
        }
    if with_value:
        found["value"] = None if message.value is None else _text(message.value)
        found["headers"] = [
            {"name": header, "value": _text(value)} for header, value in message.headers
        ]
    return found


def _print_redrives(found: list["Redrive"], as_json: bool) -> None:
    if as_json:
        for one in found:
            print_json(one._asdict())
    elif found:
        print_table(
            _REDRIVE_TITLES,
            (
                (r.partition, r.id, r.state, r.cursor, r.end, r.moved, r.refused, r.problem or "-")
                for r in found
            ),
        )
    else:
        say("no dead letters were ever sent back")


def _text(payload: bytes | None) -> str:
    return "-" if payload is None else payload.decode(errors="backslashreplace")

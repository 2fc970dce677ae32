"""``waystation schedule``: at, after, cron, list, show, cancel, retime."""

from typing import TYPE_CHECKING, Any

import click

from waystation.cli.asking import confirm, with_admin
from waystation.cli.options import bootstrap_option, example, json_option, yes_option
from waystation.cli.output import counted, print_json, print_table, say
from waystation.cli.schedule_options import (
    due_in,
    moment,
    send_options,
    sent_messages,
    shown_bytes_of,
    shown_time,
)

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.schedule_descriptions import MessageId, Scheduled, ScheduledMessage
    from waystation.model.errors import WaystationError

_LISTED = 100
_TITLES = ("ID", "DUE", "IN", "KEY", "BYTES", "RECURS")


@click.group(epilog=example("waystation schedule after orders 10m --value 'cart still open?'"))
def schedule() -> None:
    """Send messages for later; list, cancel and re-time them.

    The broker keeps them and delivers each once, not before its time. The topic must allow it:
    waystation topic create orders --config schedule.enable=true
    """


# --- sending --------------------------------------------------------------------------------


@schedule.command(
    epilog=example(
        "waystation schedule at orders 2027-01-31T09:00:00+01:00 --value 'open the shop'\n"
        "  waystation schedule at orders 1800000000000 --key shop-3 < lines.txt"
    )
)
@click.argument("topic")
@click.argument("time")
@send_options
@bootstrap_option
@json_option
def at(topic: str, time: str, bootstrap: str, as_json: bool, **message: Any) -> None:
    """Deliver messages to TOPIC at a TIME.

    TIME is ISO 8601 (this machine's time zone unless it has one), ms since 1970, or a duration
    from now on. What has just passed is delivered at once. Prints the id of each message.
    """
    _send(topic, {"deliver_at": moment(time)}, message, bootstrap, as_json)


@schedule.command(
    epilog=example("waystation schedule after orders 10m --key cart-7 --value 'still open?'")
)
@click.argument("topic")
@click.argument("delay")
@send_options
@bootstrap_option
@json_option
def after(topic: str, delay: str, bootstrap: str, as_json: bool, **message: Any) -> None:
    """Deliver messages to TOPIC after a DELAY.

    DELAY is 90s, 1h30m, PT1H30M or a number of milliseconds, counted from when the broker took
    the message. Prints the id of each message.
    """
    _send(topic, {"deliver_after": delay}, message, bootstrap, as_json)


@schedule.command(
    epilog=example(
        "waystation schedule cron reports '0 7 * * mon-fri' --zone Europe/Berlin --value daily"
    )
)
@click.argument("topic")
@click.argument("expression")
@click.option("--zone", help="The time zone, such as Europe/Berlin.  [default: UTC]")
@send_options
@bootstrap_option
@json_option
def cron(
    topic: str,
    expression: str,
    zone: str | None,
    bootstrap: str,
    as_json: bool,
    **message: Any,
) -> None:
    """Deliver messages to TOPIC again and again.

    EXPRESSION has five fields: minute, hour, day of month, month, day of week; or it is @hourly,
    @daily, @weekly, @monthly or @yearly. Prints the id of each message: cancelling it ends all
    times.
    """
    timing = {"deliver_cron": expression, "deliver_zone": zone}
    _send(topic, timing, message, bootstrap, as_json)


def _send(
    topic: str, timing: dict[str, Any], message: dict[str, Any], bootstrap: str, as_json: bool
) -> None:
    from waystation.client.schedule_descriptions import MessageId

    sent = sent_messages(topic, timing, bootstrap=bootstrap, **message)
    for one in sent:
        name = str(MessageId.of(one))
        if as_json:
            print_json({"id": name, **one._asdict()})
        else:
            click.echo(name)
    if not as_json:
        say(f"{counted(len(sent), 'message')} will wait for {topic}")


# --- looking --------------------------------------------------------------------------------


@schedule.command(
    "list",
    epilog=example(
        "waystation schedule list orders --until 1d\n"
        "  waystation schedule list orders --key cart-7 --json"
    ),
)
@click.argument("topic")
@click.option("--from", "start", metavar="TIME", help="Due at this time or later: ISO, ms or 10m.")
@click.option("--until", "end", metavar="TIME", help="Due before this time.")
@click.option("--key", help="Only messages with this key.")
@click.option("--partition", type=click.IntRange(min=0), help="Only of this partition.")
@click.option("--limit", type=click.IntRange(min=1), default=_LISTED, show_default=True)
@click.option("--after", "place", metavar="PLACE", help="Go on where a list ended.")
@bootstrap_option
@json_option
def list_pending(
    topic: str,
    start: str | None,
    end: str | None,
    key: str | None,
    partition: int | None,
    limit: int,
    place: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """List what waits for TOPIC, the earliest first."""
    from waystation.client.schedule_descriptions import Place

    chosen: dict[str, Any] = {
        "start": None if start is None else moment(start),
        "end": None if end is None else moment(end),
        "key": key,
        "partition": partition,
        "after": None if place is None else Place.of(place),
        "limit": limit + 1,
    }

    async def work(admin: "Admin") -> tuple[list["Scheduled"], int]:
        schedules = admin.schedules(topic)
        found = [one async for one in schedules.pending(**chosen)]
        return found, await schedules.count()

    found, waiting = with_admin(bootstrap, work)
    _print_list(topic, found, limit, waiting, as_json)


def _print_list(
    topic: str, found: list["Scheduled"], limit: int, waiting: int, as_json: bool
) -> None:
    shown = found[:limit]
    if as_json:
        for one in shown:
            print_json(_listed(one))
    elif shown:
        print_table(_TITLES, map(_row, shown))
    if len(found) > limit:
        say(f"{counted(waiting, 'message')} waiting for {topic}")
        say(f"go on with --after {shown[-1].place}")
    elif not as_json:
        say(f"{counted(waiting, 'message')} waiting for {topic}")


def _listed(one: "Scheduled") -> dict[str, Any]:
    return {
        "id": str(one.id),
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "due": shown_time(one.due),
        "due_ms": one.due,
        "sent_ms": one.sent,
        "key": _text(one.key),
        "value_bytes": one.value_bytes,
        "cron": one.cron,
        "zone": one.zone,
        "place": str(one.place),
    }


def _row(one: "Scheduled") -> tuple[object, ...]:
    recurs = "-" if one.cron is None else f"{one.cron} ({one.zone})"
    key = "-" if one.key is None else _text(one.key)
    size = shown_bytes_of(one.value_bytes)
    return (one.id, shown_time(one.due), due_in(one.due), key, size, recurs)


@schedule.command(epilog=example("waystation schedule show orders 3-1742"))
@click.argument("topic")
@click.argument("name", metavar="ID")
@bootstrap_option
@json_option
def show(topic: str, name: str, bootstrap: str, as_json: bool) -> None:
    """Show one message that waits for TOPIC.

    Says what became of it if it waits no more.
    """
    found = with_admin(bootstrap, lambda admin: admin.schedules(topic).get(name))
    if as_json:
        print_json(_described(found))
        return
    recurs = "" if found.cron is None else f", then by {found.cron!r} in {found.zone}"
    say(f"{found.id}: due {shown_time(found.due)} (in {due_in(found.due)}){recurs}")
    say(f"sent {shown_time(found.sent)}, key {'-' if found.key is None else _text(found.key)}")
    for header, value in found.headers:
        say(f"  {header}: {_text(value)}")
    click.echo("" if found.value is None else _text(found.value))


def _described(found: "ScheduledMessage") -> dict[str, Any]:
    return {
        "id": str(found.id),
        "topic": found.topic,
        "partition": found.partition,
        "offset": found.offset,
        "due": shown_time(found.due),
        "due_ms": found.due,
        "sent_ms": found.sent,
        "key": _text(found.key),
        "value": _text(found.value),
        "headers": [{"name": header, "value": _text(value)} for header, value in found.headers],
        "cron": found.cron,
        "zone": found.zone,
    }


# --- changing -------------------------------------------------------------------------------


@schedule.command(
    epilog=example(
        "waystation schedule cancel orders 3-1742\n"
        "  waystation schedule cancel orders --key cart-7 --yes"
    )
)
@click.argument("topic")
@click.argument("names", metavar="[ID]...", nargs=-1)
@click.option("--key", help="All that wait with this key.")
@click.option("--from", "start", metavar="TIME", help="All that are due at this time or later.")
@click.option("--until", "end", metavar="TIME", help="All that are due before this time.")
@click.option("--partition", type=click.IntRange(min=0), help="All of this partition.")
@yes_option
@bootstrap_option
@json_option
def cancel(
    topic: str,
    names: tuple[str, ...],
    key: str | None,
    start: str | None,
    end: str | None,
    partition: int | None,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Cancel messages that wait for TOPIC.

    They are never delivered. What is on its way, was delivered or cancelled before is told, and
    the exit code is 1. Of one that recurs, all times end.
    """
    chosen: dict[str, Any] = {
        "key": key,
        "start": None if start is None else moment(start),
        "end": None if end is None else moment(end),
        "partition": partition,
    }
    if bool(names) == any(value is not None for value in chosen.values()):
        raise click.UsageError(
            "name messages by their ids, or choose them by --key, --from, --until, --partition"
        )
    what = " ".join(names) or "all of these"
    confirm(f"Cancel {what} for {topic}?", yes)

    async def work(admin: "Admin") -> int:
        schedules = admin.schedules(topic)
        if names:
            return _print_outcomes(await schedules.cancel_all(names), "cancelled", as_json)
        refused = count = 0
        async for some in schedules.cancel_pending(**chosen):
            count += len(some)
            refused += _print_outcomes(some, "cancelled", as_json)
        if not count and not as_json:
            say("there are no such messages")
        return refused

    if with_admin(bootstrap, work):
        raise click.exceptions.Exit(1)


@schedule.command(
    epilog=example(
        "waystation schedule retime orders 3-1742 2027-02-01T09:00:00Z\n"
        "  waystation schedule retime orders 3-1742 3-1743 10m"
    )
)
@click.argument("topic")
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@click.argument("time")
@bootstrap_option
@json_option
def retime(topic: str, names: tuple[str, ...], time: str, bootstrap: str, as_json: bool) -> None:
    """Give messages that wait for TOPIC another TIME.

    TIME is ISO 8601, ms since 1970, or a duration from now on. Of one that recurs, only the next
    time is another.
    """
    from waystation.client.schedule_descriptions import MessageId

    due = moment(time)
    wishes = {MessageId.of(one): due for one in names}
    outcomes = with_admin(bootstrap, lambda admin: admin.schedules(topic).retime_all(wishes))
    if _print_outcomes(outcomes, f"due {shown_time(due)}", as_json):
        raise click.exceptions.Exit(1)


def _print_outcomes(
    outcomes: "dict[MessageId, WaystationError | None]", done: str, as_json: bool
) -> int:
    """Tell of each, and how many were refused."""
    for name, error in outcomes.items():
        if as_json:
            told = None if error is None else str(error)
            print_json({"id": str(name), "done": error is None, "error": told})
        elif error is None:
            say(f"{name}: {done}")
        else:
            say(str(error))
    return sum(error is not None for error in outcomes.values())


def _text(payload: bytes | None) -> str | None:
    return None if payload is None else payload.decode("utf-8", "backslashreplace")

"""``waystation group``: list, describe, reset, delete."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waystation.cli.asking import confirm, with_admin
from waystation.cli.options import bootstrap_option, example, json_option, yes_option
from waystation.cli.output import print_json, print_table, say
from waystation.cli.reset_places import place, topic_and_partitions

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.group_descriptions import (
        GroupDescription,
        OffsetMove,
        PartitionLag,
    )
    from waystation.client.resets import ResetTo
    from waystation.model.ids import TopicPartition


@click.group(epilog=example("waystation group describe billing"))
def group() -> None:
    """List, describe, reset and delete consumer groups."""


# --- list -----------------------------------------------------------------------------------


@group.command("list", epilog=example("waystation group list --state Stable --json"))
@click.option("--state", "states", multiple=True, help="Only groups in this state; again.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(["classic", "consumer", "share"]),
    help="Only groups of this kind; again.",
)
@bootstrap_option
@json_option
def list_groups(
    states: tuple[str, ...], kinds: tuple[str, ...], bootstrap: str, as_json: bool
) -> None:
    """List the groups."""
    found = with_admin(bootstrap, lambda admin: admin.list_groups(states=states, kinds=kinds))
    if as_json:
        for one in found:
            print_json(
                {
                    "group": one.group_id,
                    "state": one.state,
                    "kind": one.kind,
                    "coordinator": one.coordinator,
                }
            )
    elif found:
        rows = ((one.group_id, one.state, one.kind, one.coordinator) for one in found)
        print_table(("GROUP", "STATE", "KIND", "COORDINATOR"), rows)
    else:
        say("there are no groups; a consumer with a group id makes one")


# --- describe -------------------------------------------------------------------------------


@group.command(epilog=example("waystation group describe billing"))
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show members, what each reads, and how far the group is behind.

    LAG is the number of messages that wait, SECONDS how long the oldest of them has waited.
    In a view only messages that it shows are counted; 12+ says that it was too far to count all.
    Of a share group it is shown where each queue begins, and what nobody has acknowledged of it.
    """

    async def work(admin: "Admin") -> None:
        for name in names:
            told = await _described(admin, name)
            if as_json:
                print_json(told)
            else:
                _show(told)

    with_admin(bootstrap, work)


async def _described(admin: "Admin", name: str) -> dict[str, Any]:
    from waystation.cli.progress import progress

    found = (await admin.describe_groups(name))[name]
    if found.kind == "share":
        from waystation.cli import group_shares

        return await group_shares.described(admin, found)
    readers = {where: one.member_id for one in found.members for where in one.assignment}
    partitions = {*readers, *await admin.group_offsets(name)}
    with progress("reading", len(partitions), wanted=_is_watched()) as advance:
        lags = await admin.group_lag(name, readers, advance)
    return {
        "group": name,
        "state": found.state,
        "kind": found.kind,
        "assignor": found.assignor,
        "coordinator": str(found.coordinator),
        "members": _members(found),
        "partitions": [_lag(where, lag, readers.get(where)) for where, lag in lags.items()],
        "total": _total(lags),
    }


def _members(found: "GroupDescription") -> list[dict[str, Any]]:
    return [
        {
            "member": one.member_id,
            "instance": one.instance_id,
            "client": one.client_id,
            "host": one.host,
            "topics": one.topics,
            "partitions": [list(where) for where in one.assignment],
        }
        for one in found.members
    ]


def _lag(where: "TopicPartition", lag: "PartitionLag", reader: str | None) -> dict[str, Any]:
    return {
        "topic": where.topic,
        "partition": where.partition,
        "committed": lag.committed,
        "end": lag.end,
        "lag": lag.messages,
        "lag_seconds": lag.seconds(_now_ms()),
        "member": reader,
        **({} if lag.counted_to is None else {"lag_counted_to": lag.counted_to}),
    }


def _total(lags: dict["TopicPartition", "PartitionLag"]) -> dict[str, Any]:
    now = _now_ms()
    waited = [seconds for one in lags.values() if (seconds := one.seconds(now)) is not None]
    return {
        "partitions": len(lags),
        "lag": sum(one.messages or 0 for one in lags.values()),
        "lag_seconds": max(waited, default=0.0),
    }


def _show(told: dict[str, Any]) -> None:
    say(
        f"group {told['group']}: {told['state']}, {told['kind']} protocol, assignor "
        f"{told['assignor'] or 'none'}, coordinated at {told['coordinator']}"
    )
    if told["members"]:
        rows = [
            (one["member"], one["client"], one["host"], _shown_partitions(one["partitions"]))
            for one in told["members"]
        ]
        print_table(("MEMBER", "CLIENT", "HOST", "READS"), rows)
    else:
        say("it has no members")
    if told["kind"] == "share":
        from waystation.cli.group_shares import show_queues

        show_queues(told)
        return
    if told["partitions"]:
        say("")
        titles = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "SECONDS", "MEMBER")
        print_table(titles, map(_partition_row, told["partitions"]))
    total = told["total"]
    messages = f"{total['lag']} message{'' if total['lag'] == 1 else 's'}"
    say(f"total lag: {messages}, the oldest {total['lag_seconds']:.1f} s old")


def _shown_lag(one: dict[str, Any]) -> object:
    if one.get("lag_counted_to", one["end"]) < one["end"]:
        return f"{one['lag']}+"
    return _or_dash(one["lag"])


def _partition_row(one: dict[str, Any]) -> tuple[object, ...]:
    seconds = one["lag_seconds"]
    return (
        one["topic"],
        one["partition"],
        _or_dash(one["committed"]),
        one["end"],
        _shown_lag(one),
        "-" if seconds is None else f"{seconds:.1f}",
        _or_dash(one["member"]),
    )


def _shown_partitions(partitions: list[list[Any]]) -> str:
    """``orders:0,1 payments:3``."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(str(number))
    shown = (f"{topic}:{','.join(numbers)}" for topic, numbers in sorted(by_topic.items()))
    return " ".join(shown) or "nothing"


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _now_ms() -> Any:
    return time.time_ns() // 1_000_000


def _is_watched() -> bool:
    import sys

    return sys.stderr.isatty()


# --- reset ----------------------------------------------------------------------------------


@group.command(
    epilog=example(
        "waystation group reset billing --to-time 2026-01-31T09:30:00Z --dry-run\n"
        "  waystation group reset billing --topic orders:0,1 --shift-by -100 --yes\n"
        "  waystation group reset billing --to-current --dry-run --export billing.csv"
    )
)
@click.argument("name")
@click.option("--to-earliest", is_flag=True, help="To the oldest message.")
@click.option("--to-latest", is_flag=True, help="To the end: nothing waits any more.")
@click.option("--to-current", is_flag=True, help="To where it is, e.g. for --export.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--to-time", metavar="TIME", help="To the first message since: ISO 8601, or ms.")
@click.option("--by-duration", metavar="D", help="So far back from now: PT1H, 90m, 1d12h.")
@click.option("--shift-by", type=int, metavar="N", help="N messages on; -N: back.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="To the offsets in a CSV file: topic,partition,offset.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:P,P]",
    help="Only this topic, or some of its partitions; again.  [default: all it has committed]",
)
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.option(
    "--export",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write the new offsets as --from-file reads them; - is standard output.",
)
@yes_option
@bootstrap_option
@json_option
def reset(
    name: str,
    topics: tuple[str, ...],
    dry_run: bool,
    export: Path | None,
    yes: bool,
    bootstrap: str,
    as_json: bool,
    **places: Any,
) -> None:
    """Let the group NAME, which must have no members, go on elsewhere.

    Queues of a share group begin there; what was acknowledged behind it is delivered again.

    Whatever is asked for, each partition ends up between its oldest message and its end.
    """
    to = place(places, name)
    chosen = [topic_and_partitions(text) for text in topics]

    async def plan(admin: "Admin") -> dict["TopicPartition", "OffsetMove"]:
        if not dry_run:
            await admin.check_without_members(name)
        partitions = await _partitions(admin, chosen, to)
        return await admin.reset_group_offsets(name, to, partitions, dry_run=True)

    moves = with_admin(bootstrap, plan)
    after = {where: move.after for where, move in moves.items()}
    if not as_json:
        _show_moves(moves)
    if export is not None:
        from waystation.cli.offset_files import write_offsets

        write_offsets(export, after)
    if not dry_run:
        confirm(f"Move group {name} in {len(moves)} partitions?", yes)
        with_admin(bootstrap, lambda admin: admin.reset_group_offsets(name, after, after))
        say(f"group {name} goes on from there")
    if as_json:
        _print_moves(name, moves, dry_run)


async def _partitions(
    admin: "Admin", chosen: list[tuple[str, list[int] | None]], to: "ResetTo"
) -> list[tuple[str, int]] | None:
    """The partitions to move; ``None`` for all that the group has committed."""
    partitions: list[tuple[str, int]] = []
    for topic, numbers in chosen:
        every = [one.partition for one in (await admin.describe_topic(topic)).partitions]
        partitions += [(topic, one) for one in (every if numbers is None else numbers)]
    if isinstance(to, dict):
        return [where for where in to if not chosen or where in partitions]
    return partitions or None


def _show_moves(moves: dict["TopicPartition", "OffsetMove"]) -> None:
    rows = (
        (topic, number, _or_dash(move.before), move.after)
        for (topic, number), move in moves.items()
    )
    print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), rows)


def _print_moves(name: str, moves: dict["TopicPartition", "OffsetMove"], dry_run: bool) -> None:
    for (topic, number), move in moves.items():
        told = {"group": name, "topic": topic, "partition": number, **move._asdict()}
        print_json({**told, "dry_run": dry_run})


# --- delete ---------------------------------------------------------------------------------


@group.command(epilog=example("waystation group delete billing --yes"))
@click.argument("names", nargs=-1, required=True)
@click.option("--topic", "topics", multiple=True, help="Only its offsets of this topic; again.")
@yes_option
@bootstrap_option
@json_option
def delete(
    names: tuple[str, ...], topics: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool
) -> None:
    """Delete groups that have no members, with all their offsets or queues."""
    what = f"the offsets of {', '.join(topics)} in {', '.join(names)}" if topics else None
    confirm(f"Delete {what or ', '.join(names) + ' with all offsets'}?", yes)

    async def work(admin: "Admin") -> None:
        for name in names:
            await _delete(admin, name, topics)
            if as_json:
                print_json({"group": name, "topics": list(topics), "deleted": True})
            else:
                say(f"deleted {what or f'group {name}'}")

    with_admin(bootstrap, work)


async def _delete(admin: "Admin", name: str, topics: tuple[str, ...]) -> None:
    if not topics:
        await admin.delete_groups(name)
        return
    if await admin.is_share_group(name):
        await admin.delete_share_group_offsets(name, topics)
        return
    committed = await admin.group_offsets(name)
    await admin.delete_group_offsets(name, [one for one in committed if one.topic in topics])

"""``waystation cluster``: reassign, rebalance."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waystation.cli.asking import confirm, with_admin
from waystation.cli.local_option import cluster_bootstrap_option
from waystation.cli.moves import complain, leave, refusals
from waystation.cli.options import example, json_option, yes_option
from waystation.cli.output import counted, print_json, print_table, say

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.cluster_descriptions import ClusterStatus, MovingPartition
    from waystation.cluster.balance import Plan
    from waystation.model.ids import NodeId, TopicPartition

    Moves = Mapping[TopicPartition, tuple[NodeId, ...]]

_LOOK_EVERY_S = 0.5
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


class _Rate(click.ParamType[int]):
    """Bytes a second, as people write them: 50MB, 1.5GB, 500000."""

    name = "bytes/s"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """The number."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?(?:/s)?", str(value), re.IGNORECASE)
        if not found:
            self.fail(f"{value!r} is no rate: give e.g. 50MB", param, ctx)
        return int(float(found[1]) * _UNITS[found[2].upper()])


_throttle_option = click.option(
    "--throttle", type=_Rate(), metavar="RATE", help="Copy no faster on each broker, e.g. 50MB."
)
_wait_option = click.option("--wait", is_flag=True, help="Return when it is done, not begun.")
_dry_option = click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")


# --- reassign -------------------------------------------------------------------------------


@click.command(
    epilog=example(
        "waystation cluster reassign --topics orders --to 2,3,4 --throttle 50MB --wait\n"
        "  waystation cluster reassign --topics orders --replication-factor 3\n"
        "  waystation cluster reassign --plan moves.json --dry-run\n"
        "  waystation cluster reassign --status"
    )
)
@click.option("--topics", metavar="T,...", help="The topics to move; '*' stands for anything.")
@click.option("--to", metavar="N,...", help="The brokers that shall hold them.")
@click.option("--replication-factor", type=click.IntRange(1), help="How many replicas each.")
@click.option("--plan", type=click.Path(path_type=Path), help="A JSON file as Kafka's tool has.")
@_throttle_option
@click.option("--status", "show", is_flag=True, help="Show what moves; lift throttles if nothing.")
@click.option("--cancel", is_flag=True, help="Stop moves, of --topics or all, and take them back.")
@_dry_option
@_wait_option
@yes_option
@cluster_bootstrap_option
@json_option
def reassign(
    topics: str | None,
    to: str | None,
    replication_factor: int | None,
    plan: Path | None,
    throttle: int | None,
    show: bool,
    cancel: bool,
    dry_run: bool,
    wait: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Give partitions other replicas.

    Name topics and the brokers that shall hold them, or how many replicas there shall be, or
    give a plan as kafka-reassign-partitions takes it. Replicas that need not move stay.
    Producers and consumers do not notice: an old replica goes when the new one is in sync.
    """
    placed = to is not None or replication_factor is not None
    if [show, cancel, plan is not None, placed].count(True) != 1:
        raise click.UsageError("give one of --to/--replication-factor, --plan, --status, --cancel")
    if placed and topics is None:
        raise click.UsageError("--to and --replication-factor need --topics")
    brokers = _numbers(to)

    async def work(admin: "Admin") -> int:
        if show:
            return await _show_moves(admin, as_json)
        if cancel:
            return await _cancel(admin, topics, yes, as_json)
        moves = await _wanted(admin, topics, brokers, replication_factor, plan)
        return await _move(admin, moves, throttle, dry_run, wait, yes, as_json)

    leave(with_admin(bootstrap, work))


async def _wanted(
    admin: "Admin",
    topics: str | None,
    brokers: "list[NodeId] | None",
    factor: int | None,
    plan: Path | None,
) -> "Moves":
    from waystation.cli.cluster_image import asked_image, shares_machines
    from waystation.cli.plan_files import read_plan
    from waystation.cluster.moving import onto

    if plan is not None:
        return read_plan(plan)
    assert topics is not None
    image = await asked_image(admin)
    share = await shares_machines(admin, image)
    names = _matching(topics, list(image.topics))
    return onto(image, names, brokers, factor, share_machines=share)


async def _move(
    admin: "Admin",
    moves: "Moves",
    rate: int | None,
    dry_run: bool,
    wait: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Ask for the moves, or only show them; the exit code."""
    from waystation.cli.plan_files import document
    from waystation.cli.throttling import throttle, unthrottle

    before = await _replicas(admin)
    if dry_run or not moves:
        if as_json:
            print_json(document(moves))
        else:
            _table(moves, before)
            say(
                f"{counted(len(moves), 'partition')} would move" if moves else "nothing has to move"
            )
        return 0
    if not yes and not as_json:
        _table(moves, before)
    confirm(f"Move {counted(len(moves), 'partition')}?", yes)
    if rate is not None:
        sources = {where: (before.get(where, ()), target) for where, target in moves.items()}
        await throttle(admin, sources, rate)
    refused = refusals(await admin.alter_reassignments(dict(moves.items())))
    begun = len(moves) - len(refused)
    if rate is not None and not begun:
        await unthrottle(admin, {one.topic for one in moves})
    if as_json:
        print_json({**document(moves), "begun": begun, "refused": refused})
    else:
        # So that there is a way back.
        say(f"{counted(begun, 'move')} asked for; before: {_text(document(_only(before, moves)))}")
    complain(refused)
    if wait:
        await _finished(admin, moves, as_json)
    return 1 if refused else 0


async def _finished(admin: "Admin", moves: "Moves", as_json: bool) -> None:
    """Until none of ``moves`` is on its way; throttles go then."""
    from waystation.cli.throttling import unthrottle

    left = -1
    while moving := [one for one in await admin.list_reassignments() if one in moves]:
        if len(moving) != left and not as_json:
            left = len(moving)
            say(f"{counted(left, 'partition')} on the way")
        await asyncio.sleep(_LOOK_EVERY_S)
    await unthrottle(admin, {one.topic for one in moves})
    if not as_json:
        say("done")


async def _show_moves(admin: "Admin", as_json: bool) -> int:
    from waystation.cli.throttling import unthrottle

    told = await admin.cluster_status()
    freed = await unthrottle(admin, [one.name for one in await admin.list_topics(internal=True)])
    rows = [_moving_row(told, one) for one in told.reassignments]
    titles = ("PARTITION", "REPLICAS", "TARGET", "COPIED", "WAITS FOR")
    if as_json:
        names = ("partition", "replicas", "target", "copied", "waits_for")
        print_json(
            {
                "moving": [dict(zip(names, row, strict=True)) for row in rows],
                "throttles_removed": freed,
            }
        )
    elif rows:
        print_table(titles, rows)
    else:
        say("nothing is on its way")
    if freed and not as_json:
        say(f"removed the throttles of {', '.join(freed)}")
    return 0


def _moving_row(told: "ClusterStatus", one: "MovingPartition") -> tuple[object, ...]:
    """How far the copies are, by their size beside that of the largest replica."""
    sizes = {
        broker.node: directory.partitions[one.partition]
        for broker in told.brokers
        for directory in broker.log_dirs or ()
        if one.partition in directory.partitions
    }
    whole = max(sizes.values(), default=0)
    copied = [sizes.get(node, 0) / whole for node in one.adding] if whole else [0.0]
    waits = [f"{node} (dead)" if node in one.missing else str(node) for node in one.waiting_for]
    return (
        str(one.partition),
        _joined(one.replicas),
        _joined(one.target),
        f"{min(copied, default=1.0):.0%}",
        ",".join(waits) or "-",
    )


async def _cancel(admin: "Admin", topics: str | None, yes: bool, as_json: bool) -> int:
    from waystation.cli.throttling import unthrottle

    moving = list(await admin.list_reassignments())
    if topics is not None:
        names = _matching(topics, [one.topic for one in moving]) if moving else []
        moving = [one for one in moving if one.topic in names]
    if moving:
        confirm(f"Take back the moves of {counted(len(moving), 'partition')}?", yes)
    outcomes = await admin.alter_reassignments(dict.fromkeys(moving)) if moving else {}
    refused = refusals(outcomes)
    await unthrottle(admin, {one.topic for one in moving})
    if as_json:
        print_json({"cancelled": [str(one) for one in outcomes], "refused": refused})
    else:
        taken = len(outcomes) - len(refused)
        say(f"taking back {counted(taken, 'move')}" if outcomes else "nothing is on its way")
    complain(refused)
    return 1 if refused else 0


# --- rebalance ------------------------------------------------------------------------------


@click.command(
    epilog=example("waystation cluster rebalance --dry-run\n  waystation cluster rebalance --wait")
)
@_dry_option
@_throttle_option
@_wait_option
@yes_option
@cluster_bootstrap_option
@json_option
def rebalance(
    dry_run: bool, throttle: int | None, wait: bool, yes: bool, bootstrap: str, as_json: bool
) -> None:
    """Even out what brokers hold and lead.

    With the fewest copies, and never bringing replicas of a partition nearer together. For use
    after a broker was added, or topics were deleted.
    """

    async def work(admin: "Admin") -> int:
        from waystation.cli.cluster_image import asked_image, shares_machines
        from waystation.cluster.balance import plan

        image = await asked_image(admin)
        wanted = plan(image, share_machines=await shares_machines(admin, image))
        if not as_json:
            _show_balance(wanted)
        return await _move(admin, wanted.moves, throttle, dry_run, wait, yes, as_json)

    leave(with_admin(bootstrap, work))


def _show_balance(wanted: "Plan") -> None:
    rows = [
        (node, before.replicas, after.replicas, before.leaders, after.leaders)
        for node, before in wanted.before.items()
        for after in (wanted.after[node],)
    ]
    print_table(("BROKER", "REPLICAS", "THEN", "PREFERRED LEADERS", "THEN"), rows)
    say(f"{counted(wanted.copies, 'replica')} to copy")


# --- what they share ------------------------------------------------------------------------


async def _replicas(admin: "Admin") -> "dict[TopicPartition, tuple[NodeId, ...]]":
    from waystation.model.ids import TopicPartition

    return {
        TopicPartition(topic.name, one.partition): one.replicas
        for topic in await admin.list_topics(internal=True)
        for one in topic.partitions
    }


def _only(some: "Moves", moves: "Moves") -> "Moves":
    return {where: some[where] for where in moves if where in some}


def _table(moves: "Moves", before: "Moves") -> None:
    rows = [
        (where, _joined(before.get(where, ())), _joined(target)) for where, target in moves.items()
    ]
    if rows:
        print_table(("PARTITION", "REPLICAS", "THEN"), rows)


def _text(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _joined(some: Any) -> str:
    return ",".join(map(str, some)) or "-"


def _numbers(text: str | None) -> "list[NodeId] | None":
    from waystation.model.ids import NodeId

    if text is None:
        return None
    try:
        found = [NodeId(int(one)) for one in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--to {text!r}: must be numbers of brokers, e.g. 1,2,3") from None
    if len(set(found)) < len(found):
        raise click.UsageError(f"--to {text!r}: a broker holds one replica of a partition at most")
    return found


def _matching(texts: str, names: list[str]) -> list[str]:
    """The topics that were named, in which ``*`` stands for anything."""
    from fnmatch import fnmatchcase

    from waystation.model.errors import UnknownTopicError

    found: dict[str, None] = {}
    for text in texts.split(","):
        some = [name for name in names if name == text or ("*" in text and fnmatchcase(name, text))]
        if not some:
            raise UnknownTopicError(f"there is no topic {text!r}: see `waystation topic list`")
        found.update(dict.fromkeys(some))
    return list(found)

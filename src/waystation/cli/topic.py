"""``waystation topic``: create, list, describe, alter, truncate, delete."""

from typing import TYPE_CHECKING, Any

import click

from waystation.cli.asking import confirm, patiently, with_admin
from waystation.cli.options import (
    bootstrap_option,
    example,
    json_option,
    pairs,
    parse_time,
    yes_option,
)
from waystation.cli.output import counted, print_json, print_table, say, shown_bytes

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.descriptions import ConfigEntry, TopicDescription


_ARCHIVE = "retention.after.archive"


@click.group(
    epilog=example("waystation topic create orders --partitions 3 --config retention.ms=86400000")
)
def topic() -> None:
    """Create, list, describe, alter, truncate and delete topics."""


# --- create and list ------------------------------------------------------------------------


@topic.command(
    epilog=example("waystation topic create orders --partitions 3 --config retention.ms=86400000")
)
@click.argument("name")
@click.option("--partitions", type=int, help="How many partitions.  [default: the broker's]")
@click.option(
    "--replication-factor", type=int, help="How many copies of each.  [default: the broker's]"
)
@click.option(
    "--profile",
    type=click.Choice(["balanced", "latency", "throughput"]),
    help="What the topic is tuned for; options of its own win.  [default: the broker's]",
)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="An option.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic is there already.")
@bootstrap_option
@json_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    profile: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create the topic NAME."""
    from waystation.model.errors import TopicExistsError

    async def work(admin: "Admin") -> dict[str, Any]:
        try:
            made = await admin.create_topic(
                name,
                partitions,
                replication_factor=replication_factor,
                configs=_with_profile(pairs(configs, "--config"), profile),
            )
        except TopicExistsError:
            if not if_not_exists:
                raise
            return {"topic": name, "created": False}
        return {
            "topic": name,
            "created": True,
            "id": str(made.id),
            "partitions": made.partitions,
            "replication_factor": made.replication_factor,
        }

    told = with_admin(bootstrap, work)
    if as_json:
        print_json(told)
    elif told["created"]:
        say(f"created topic {name} with {counted(told['partitions'], 'partition')}")
    else:
        say(f"topic {name} exists already")


def _with_profile(configs: dict[str, str], profile: str | None) -> dict[str, str]:
    return configs if profile is None else {**configs, "profile": profile}


@topic.command("list", epilog=example("waystation topic list --json"))
@click.option("--internal", is_flag=True, help="Also those that the cluster keeps for itself.")
@bootstrap_option
@json_option
def list_topics(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List the topics."""
    found = with_admin(bootstrap, lambda admin: admin.list_topics(internal=internal))
    if as_json:
        for one in found:
            print_json({"topic": one.name, "id": str(one.id), "partitions": len(one.partitions)})
    elif found:
        print_table(("TOPIC", "PARTITIONS"), ((one.name, len(one.partitions)) for one in found))
    else:
        say("there are no topics; `waystation topic create NAME` makes one")


# --- describe -------------------------------------------------------------------------------


@topic.command(epilog=example("waystation topic describe orders"))
@click.argument("name")
@click.option("--all-configs", is_flag=True, help="Also options that have their default.")
@bootstrap_option
@json_option
def describe(name: str, all_configs: bool, bootstrap: str, as_json: bool) -> None:
    """Show the partitions of the topic NAME, what they hold, and the topic's options."""
    told = with_admin(
        bootstrap, lambda admin: patiently(lambda: _described(admin, name, all_configs))
    )
    if as_json:
        print_json(told)
        return
    say(f"topic {name}, id {told['id']}")
    titles = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "START", "END", "SIZE")
    print_table(titles, (_partition_row(one) for one in told["partitions"]))
    if told["archive"]:
        _tell_archive(told["archive"])
    if told["configs"]:
        say("")
        rows = [(option, one["value"], one["source"]) for option, one in told["configs"].items()]
        print_table(("OPTION", "VALUE", "FROM"), rows)


async def _described(admin: "Admin", name: str, all_configs: bool) -> dict[str, Any]:
    from waystation.model.ids import TopicPartition

    described = await admin.describe_topic(name)
    starts, ends = await _ends(admin, described)
    sizes: dict[TopicPartition, int] = {}
    for directory in await admin.describe_log_dirs():
        sizes |= directory.partitions
    configs = await admin.describe_configs(name)
    group = (configs[_ARCHIVE].value or "").strip() if _ARCHIVE in configs else ""
    return {
        "topic": name,
        "id": str(described.id),
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "leader_epoch": one.epoch,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "start_offset": starts.get(one.partition),
                "end_offset": ends.get(one.partition),
                "size_bytes": sizes.get(TopicPartition(name, one.partition)),
            }
            for one in described.partitions
        ],
        "archive": await _archive(admin, name, group, starts, ends) if group else None,
        "configs": _shown_configs(configs, all_configs),
    }


async def _archive(
    admin: "Admin", name: str, group: str, starts: dict[int, int], ends: dict[int, int]
) -> dict[str, Any]:
    """How far the group that archives the topic is, and how many offsets are kept for it."""
    committed = await admin.group_offsets(group, [(name, one) for one in ends])
    positions = {where.partition: int(at.offset) for where, at in committed.items()}
    return {
        "group": group,
        "partitions": [
            {
                "partition": one,
                "archived_up_to": positions.get(one),
                "held_messages": max(0, ends[one] - max(starts[one], positions.get(one, 0))),
            }
            for one in sorted(ends)
        ],
    }


def _tell_archive(archive: dict[str, Any]) -> None:
    say(f"\nkept until group {archive['group']} has archived it:")
    rows = [
        (
            one["partition"],
            "nothing" if one["archived_up_to"] is None else one["archived_up_to"],
            one["held_messages"],
        )
        for one in archive["partitions"]
    ]
    print_table(("PARTITION", "ARCHIVED UP TO", "MESSAGES HELD"), rows)


async def _ends(
    admin: "Admin", described: "TopicDescription"
) -> tuple[dict[int, int], dict[int, int]]:
    """First and next offset of the partitions that have a leader to ask."""
    from waystation.client.offsets import EARLIEST, LATEST

    led = [(described.name, one.partition) for one in described.partitions if one.leader >= 0]
    starts = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST))
    return (
        {where.partition: told.offset for where, told in starts.items()},
        {where.partition: told.offset for where, told in ends.items()},
    )


def _shown_configs(configs: dict[str, "ConfigEntry"], every: bool) -> dict[str, dict[str, Any]]:
    from waystation.client.descriptions import ConfigSource
    from waystation.model.settings import PROFILE

    profile = configs[PROFILE].value if PROFILE in configs else None
    shown = {}
    for name, one in sorted(configs.items()):
        by_profile = one.given_as == PROFILE != name
        if every or by_profile or one.source is ConfigSource.DYNAMIC_TOPIC_CONFIG:
            source = f"profile {profile}" if by_profile else one.source.name.lower()
            shown[name] = {"value": one.value, "source": source}
    return shown


def _partition_row(one: dict[str, Any]) -> tuple[object, ...]:
    size = one["size_bytes"]
    return (
        one["partition"],
        "none" if one["leader"] < 0 else one["leader"],
        one["leader_epoch"],
        ",".join(map(str, one["replicas"])),
        ",".join(map(str, one["in_sync"])),
        "?" if one["start_offset"] is None else one["start_offset"],
        "?" if one["end_offset"] is None else one["end_offset"],
        "?" if size is None else shown_bytes(size),
    )


# --- change ---------------------------------------------------------------------------------


@topic.command(epilog=example("waystation topic alter orders --partitions 6 --set retention.ms=-1"))
@click.argument("name")
@click.option("--partitions", type=int, help="The new number of partitions; it can only grow.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set an option.")
@click.option("--unset", multiple=True, metavar="NAME", help="Return an option to its default.")
@bootstrap_option
@json_option
def alter(
    name: str,
    partitions: int | None,
    sets: tuple[str, ...],
    unset: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Add partitions to the topic NAME, or change its options."""
    if partitions is None and not sets and not unset:
        raise click.UsageError("nothing to alter: give --partitions, --set or --unset")
    changes = pairs(sets, "--set")

    async def work(admin: "Admin") -> None:
        if changes or unset:
            await admin.alter_configs(name, set=changes, unset=unset)
        if partitions is not None:
            await admin.create_partitions(name, partitions)

    with_admin(bootstrap, work)
    if as_json:
        print_json({"topic": name, "partitions": partitions, "set": changes, "unset": unset})
    else:
        say(f"altered topic {name}")


@topic.command(
    epilog=example("waystation topic truncate orders --before-time 2026-01-31T00:00:00Z")
)
@click.argument("name")
@click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; again.")
@click.option("--before", type=int, metavar="OFFSET", help="Delete what comes before OFFSET.")
@click.option("--before-time", metavar="TIME", help="Delete what is older: ISO 8601, or ms.")
@click.option("--all", "everything", is_flag=True, help="Delete everything.")
@yes_option
@bootstrap_option
@json_option
def truncate(
    name: str,
    partitions: tuple[int, ...],
    before: int | None,
    before_time: str | None,
    everything: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Delete the oldest messages of the topic NAME, for good."""
    if [before is not None, before_time is not None, everything].count(True) != 1:
        raise click.UsageError("say how far: one of --before, --before-time and --all")
    time = None if before_time is None else parse_time(before_time)
    confirm(f"Delete messages of topic {name} for good?", yes)

    async def work(admin: "Admin") -> dict[int, int]:
        described = await admin.describe_topic(name)
        chosen = partitions or [one.partition for one in described.partitions]
        limits = await _limits(admin, [(name, one) for one in chosen], before, time)
        starts = await admin.delete_records(limits)
        return {where.partition: offset for where, offset in starts.items()}

    starts = with_admin(bootstrap, work)
    if as_json:
        print_json({"topic": name, "start_offsets": {str(one): at for one, at in starts.items()}})
    else:
        print_table(("PARTITION", "STARTS AT"), sorted(starts.items()))


async def _limits(
    admin: "Admin", chosen: list[tuple[str, int]], before: int | None, time: int | None
) -> dict[tuple[str, int], int | None]:
    """The offset before which each partition is cut; ``None`` cuts all of it."""
    from waystation.client.offsets import LATEST

    if time is not None:
        found = await admin.list_offsets(dict.fromkeys(chosen, time))
        return {one: told.offset if told.offset >= 0 else None for one, told in found.items()}
    if before is None:
        return dict.fromkeys(chosen)
    # A partition that ends before the offset is cut whole; it need not be as long as others.
    ends = await admin.list_offsets(dict.fromkeys(chosen, LATEST))
    return {where: min(before, told.offset) for where, told in ends.items()}


@topic.command(epilog=example("waystation topic delete orders --yes"))
@click.argument("names", nargs=-1, required=True)
@yes_option
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics with all their messages."""
    confirm(f"Delete {', '.join(names)} with all messages?", yes)

    async def work(admin: "Admin") -> None:
        for name in names:
            await admin.delete_topic(name)
            if as_json:
                print_json({"topic": name, "deleted": True})
            else:
                say(f"deleted topic {name}")

    with_admin(bootstrap, work)

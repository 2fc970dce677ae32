"""``waystation view``: create, list, describe, delete."""

from typing import TYPE_CHECKING, Any

import click

from waystation.cli.asking import confirm, with_admin
from waystation.cli.options import bootstrap_option, example, json_option, yes_option
from waystation.cli.output import counted, print_json, print_table, say

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.admin_views import ViewDescription

_EXAMPLE = (
    "waystation view create refunds --on orders --where \"headers.kind = 'refund' AND "
    'value.amount > 100"'
)


@click.group(epilog=example(_EXAMPLE))
def view() -> None:
    """Create, list, describe and delete views: filtered topics that can only be read.

    A view shows the messages of a topic that match an expression, under the topic's own
    partitions and offsets. Every Kafka client reads it as a topic.
    """


@view.command(epilog=example(_EXAMPLE))
@click.argument("name")
@click.option("--on", required=True, metavar="TOPIC", help="The topic to read.")
@click.option(
    "--where", required=True, metavar="EXPRESSION", help="Which of its messages: an SQL condition."
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the same view is there already.")
@bootstrap_option
@json_option
def create(
    name: str, on: str, where: str, if_not_exists: bool, bootstrap: str, as_json: bool
) -> None:
    """Create the view NAME."""
    from waystation.model.errors import TopicExistsError

    async def work(admin: "Admin") -> dict[str, Any]:
        try:
            made = await admin.create_view(name, on, where)
        except TopicExistsError:
            if not if_not_exists:
                raise
            there = await admin.describe_view(name)
            if (there.on, there.where) != (on, where):
                raise
            return {**_told(there), "created": False}
        told = {"view": name, "on": on, "where": where, "id": str(made.id)}
        return {**told, "partitions": made.partitions, "created": True}

    told = with_admin(bootstrap, work)
    if as_json:
        print_json(told)
    elif told["created"]:
        say(f"created view {name} of topic {on} with {counted(told['partitions'], 'partition')}")
    else:
        say(f"view {name} exists already")


@view.command("list", epilog=example("waystation view list --json"))
@bootstrap_option
@json_option
def list_views(bootstrap: str, as_json: bool) -> None:
    """List the views."""
    found = with_admin(bootstrap, lambda admin: admin.list_views())
    if as_json:
        for one in found:
            print_json(_told(one))
    elif found:
        print_table(("VIEW", "ON", "WHERE"), ((one.name, one.on, one.where) for one in found))
    else:
        say("there are no views; `waystation view create NAME --on TOPIC --where ...` makes one")


@view.command(epilog=example("waystation view describe refunds"))
@click.argument("name")
@click.option("--count", is_flag=True, help="Count the messages that it shows, for up to 5 s.")
@bootstrap_option
@json_option
def describe(name: str, count: bool, bootstrap: str, as_json: bool) -> None:
    """Show what the view NAME reads and shows, and where its partitions begin and end."""

    async def work(admin: "Admin") -> dict[str, Any]:
        return {
            **_told(await admin.describe_view(name)),
            "offsets": await _offsets(admin, name, count),
        }

    told = with_admin(bootstrap, work)
    if as_json:
        print_json(told)
        return
    say(f"view {name} of topic {told['on']}, id {told['id']}")
    say(f"where {told['where']}")
    titles = ("PARTITION", "START", "END", *(["MESSAGES"] if count else []))
    print_table(titles, (_row(one, count) for one in told["offsets"]))


async def _offsets(admin: "Admin", name: str, count: bool) -> list[dict[str, Any]]:
    from waystation.client.admin import EARLIEST, LATEST

    every = [(name, one.partition) for one in (await admin.describe_topic(name)).partitions]
    starts = await admin.list_offsets(dict.fromkeys(every, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(every, LATEST))
    told: list[dict[str, Any]] = [
        {"partition": where.partition, "start": start.offset, "end": ends[where].offset}
        for where, start in starts.items()
    ]
    if count:
        counts = await admin.count_matching({where: one.offset for where, one in starts.items()})
        for one, found in zip(told, counts.values(), strict=True):
            one.update(messages=found.matches, counted_to=found.next_offset)
    return told


def _row(one: dict[str, Any], count: bool) -> tuple[object, ...]:
    ends = (one["partition"], one["start"], one["end"])
    if not count:
        return ends
    return (*ends, f"{one['messages']}{'+' if one['counted_to'] < one['end'] else ''}")


@view.command(epilog=example("waystation view delete refunds --yes"))
@click.argument("names", nargs=-1, required=True)
@yes_option
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete views, and what groups have committed on them; their topics stay as they are."""
    confirm(f"Delete {', '.join(names)}?", yes)

    async def work(admin: "Admin") -> None:
        for name in names:
            await admin.delete_view(name)
            if as_json:
                print_json({"view": name, "deleted": True})
            else:
                say(f"deleted view {name}")

    with_admin(bootstrap, work)


def _told(one: "ViewDescription") -> dict[str, Any]:
    return {
        "view": one.name,
        "on": one.on,
        "where": one.where,
        "id": str(one.id),
        "partitions": one.partitions,
    }

"""``waystation queue``: create, list, stats, delete; and the commands that move messages."""

from typing import TYPE_CHECKING, Any

import click

from waystation.cli.asking import confirm, with_admin
from waystation.cli.options import (
    bootstrap_option,
    example,
    json_option,
    pairs,
    yes_option,
)
from waystation.cli.output import counted, print_json, print_table, say
from waystation.cli.queue_dead import dead
from waystation.cli.queue_messages import ack, extend, nack, receive, send
from waystation.cli.queue_options import group_option, milliseconds

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.queue_descriptions import QueueDescription, QueuePartition


@click.group(
    epilog=example(
        "waystation queue create orders --max-deliveries 5 --dead-letters orders.dead\n"
        "  echo 'hello' | waystation queue send orders\n"
        "  waystation queue receive orders"
    )
)
def queue() -> None:
    """Queues: each message to one consumer, which acknowledges it.

    A queue is a topic read by the share group of the same name, or of the name given by --group:
    each group is a queue of its own, and gets every message.
    """


for command in (send, receive, ack, nack, extend, dead):
    queue.add_command(command)


# --- create ---------------------------------------------------------------------------------


@queue.command(
    epilog=example(
        "waystation queue create orders --partitions 4 --order-by-key\n"
        "  waystation queue create mails --lock 5m --max-deliveries 3 --retry-after 10s "
        "--dead-letters mails.dead"
    )
)
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), help="  [default: the broker's]")
@click.option("--replication", type=click.IntRange(min=1), help="  [default: the broker's]")
@click.option(
    "--order-by-key/--any-order",
    default=None,
    help="One message of each key at a time, in order, with any number of consumers.",
)
@click.option(
    "--priority/--no-priority", default=None, help="Higher numbers in the header priority go first."
)
@click.option("--lock", metavar="D", help="How long a message is a consumer's, e.g. 30s.")
@click.option(
    "--max-deliveries", type=click.IntRange(min=1), help="How often it is tried before it is dead."
)
@click.option("--retry-after", metavar="D", help="The first wait between two tries, e.g. 10s.")
@click.option("--dead-letters", metavar="TOPIC", help="Where dead messages go; made when one does.")
@click.option("--delays", is_flag=True, help="Let messages be sent for later (--after, --at).")
@click.option(
    "--from-end", is_flag=True, help="Only what is sent from the first receive on.  [default: all]"
)
@click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="Another group config; again."
)
@group_option
@bootstrap_option
@json_option
def create(
    name: str,
    partitions: int | None,
    replication: int | None,
    order_by_key: bool | None,
    priority: bool | None,
    lock: str | None,
    max_deliveries: int | None,
    retry_after: str | None,
    dead_letters: str | None,
    delays: bool,
    from_end: bool,
    configs: tuple[str, ...],
    group: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a queue, or change the policy of one that exists.

    Makes the topic NAME unless it exists, and sets what its share group shall do. What is not
    given stays as it is.
    """
    more = pairs(configs, "--config")
    lock_ms = None if lock is None else milliseconds(lock, "--lock")
    retry_ms = None if retry_after is None else milliseconds(retry_after, "--retry-after")

    async def work(admin: "Admin") -> bool:
        return await admin.create_queue(
            name,
            partitions,
            group=group,
            replication_factor=replication,
            order_by_key=order_by_key,
            priority=priority,
            max_deliveries=max_deliveries,
            lock_ms=lock_ms,
            retry_backoff_ms=retry_ms,
            dead_letter_topic=dead_letters,
            delays=delays,
            from_start=not from_end,
            group_configs=more,
        )

    is_new = with_admin(bootstrap, work)
    if as_json:
        print_json({"queue": name, "group": group or name, "topic_created": is_new})
    else:
        kept = "" if is_new else "; its topic was there already"
        say(f"created queue {name}{kept}")


# --- list -----------------------------------------------------------------------------------


@queue.command("list", epilog=example("waystation queue list --json"))
@bootstrap_option
@json_option
def list_queues(bootstrap: str, as_json: bool) -> None:
    """List the queues: share groups, and the topics they read.

    A queue is listed from the first time that somebody receives from it.
    """
    found = with_admin(bootstrap, lambda admin: admin.list_queues())
    if as_json:
        for one in found:
            print_json({"group": one.group_id, "state": one.state, "topics": one.topics})
    elif found:
        rows = ((one.group_id, one.state, ", ".join(one.topics) or "-") for one in found)
        print_table(("GROUP", "STATE", "TOPICS"), rows)
    else:
        say("there are no queues in use; `waystation queue receive` begins to use one")


# --- stats ----------------------------------------------------------------------------------


@queue.command(epilog=example("waystation queue stats orders --json"))
@click.argument("names", nargs=-1, required=True)
@group_option
@bootstrap_option
@json_option
def stats(names: tuple[str, ...], group: str | None, bootstrap: str, as_json: bool) -> None:
    """Show how many messages wait, are out at consumers, and are dead.

    Everything before START is settled. READY can be delivered now, IN FLIGHT is held by consumers,
    WAITING has failed and waits for another try.
    """

    async def work(admin: "Admin") -> None:
        for name in names:
            found = await admin.describe_queue(name, group=group)
            if as_json:
                print_json(_told(found))
            else:
                _show(found)

    with_admin(bootstrap, work)


def _told(found: "QueueDescription") -> dict[str, Any]:
    return {
        "queue": found.name,
        "group": found.group_id,
        "state": found.state,
        "members": found.members,
        "unsettled": found.unsettled,
        "ready": found.ready,
        "in_flight": found.in_flight,
        "dead_letter_topic": found.dead_letter_topic,
        "dead_letters": found.dead_letters,
        "partitions": [{**one._asdict(), "ready": one.ready} for one in found.partitions],
    }


def _show(found: "QueueDescription") -> None:
    named = "" if found.group_id == found.name else f" (group {found.group_id})"
    state = "nobody has received anything yet" if found.state == "Dead" else found.state
    say(f"queue {found.name}{named}: {state}, {counted(found.members, 'consumer')}")
    titles = ("PARTITION", "START", "END", "UNSETTLED", "READY", "IN FLIGHT", "WAITING")
    print_table(titles, map(_row, found.partitions))
    total = f"{counted(found.unsettled, 'message')} unsettled"
    if found.dead_letter_topic is not None:
        total += f", {counted(found.dead_letters or 0, 'dead letter')} in {found.dead_letter_topic}"
    say(total)
    if any(one.unsettled is None for one in found.partitions):
        say(
            "it begins with what is sent after somebody first asks; "
            f"`waystation queue create {found.name}` lets it begin with the oldest message"
        )


def _row(one: "QueuePartition") -> tuple[object, ...]:
    figures = (one.start, one.end, one.unsettled, one.ready, one.in_flight, one.waiting)
    return one.partition, *("-" if figure is None else figure for figure in figures)


# --- delete ---------------------------------------------------------------------------------


@queue.command(epilog=example("waystation queue delete orders --yes"))
@click.argument("name")
@group_option
@yes_option
@bootstrap_option
@json_option
def delete(name: str, group: str | None, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete the share group of a queue, and with it what it has settled.

    The topic and its messages stay: whoever receives next gets them again. To delete them too, use
    `waystation topic delete`.
    """
    confirm(f"Forget what queue {name} has settled?", yes)
    with_admin(bootstrap, lambda admin: admin.delete_queue(name, group=group))
    if as_json:
        print_json({"queue": name, "group": group or name, "deleted": True})
    else:
        say(f"deleted queue {name}; topic {name} stays")

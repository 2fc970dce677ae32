"""``waystation txn``: list, describe, abort, find-hanging, outcome."""

import time
from typing import TYPE_CHECKING, Any

import click

from waystation.cli.asking import confirm, with_admin
from waystation.cli.options import (
    bootstrap_option,
    example,
    json_option,
    parse_duration,
    yes_option,
)
from waystation.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.transaction_descriptions import (
        OpenTransaction,
        TransactionDescription,
    )
    from waystation.model.ids import TopicPartition

_LONGEST_TIMEOUT = "transaction.max.timeout.ms"
_LONGEST_TIMEOUT_MS = 900_000


@click.group(epilog=example("waystation txn list --state Ongoing --open-for 5m"))
def txn() -> None:
    """List, describe and end transactions."""


# --- list -----------------------------------------------------------------------------------


@txn.command("list", epilog=example("waystation txn list --state Ongoing --json"))
@click.option("--state", "states", multiple=True, help="Only those in this state; again.")
@click.option(
    "--producer", "producers", type=int, multiple=True, help="Of this producer id; again."
)
@click.option("--open-for", metavar="D", help="Only those open for longer: 90s, 5m, PT1H.")
@bootstrap_option
@json_option
def list_transactions(
    states: tuple[str, ...],
    producers: tuple[int, ...],
    open_for: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """List transactional ids and their states."""
    open_for_ms = None if open_for is None else _milliseconds(open_for)
    found = with_admin(
        bootstrap,
        lambda admin: admin.list_transactions(
            states=states, producers=producers, open_for_ms=open_for_ms
        ),
    )
    if as_json:
        for one in found:
            print_json(one._asdict())
    elif found:
        print_table(("TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"), found)
    elif states or producers or open_for:
        say("there are no such transactions")
    else:
        say("there are no transactions; a producer with a transactional id makes one")


# --- describe -------------------------------------------------------------------------------


@txn.command(epilog=example("waystation txn describe billing-1"))
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show transactions and where they wrote.

    It is the last transaction of each transactional ID.

    FIRST OFFSET is where it begins in a partition: readers of committed messages only get
    nothing from there on until it ends.
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
    found = (await admin.describe_transactions(name))[name]
    written = await _written(admin, found)
    return {
        "transactional_id": name,
        "state": found.state,
        "producer": found.producer,
        "epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "started_at": found.started_at,
        "open_seconds": _seconds_since(found.started_at) if found.open else None,
        "coordinator": str(found.coordinator),
        "partitions": [
            {"topic": topic, "partition": number, **written.get((topic, number), _NOT_WRITTEN)}
            for topic, number in sorted(found.partitions)
        ],
    }


_NOT_WRITTEN = {"first_offset": None, "last_written_at": None}


async def _written(
    admin: "Admin", found: "TransactionDescription"
) -> dict[tuple[str, int], dict[str, Any]]:
    """Where the transaction begins in its partitions; nothing if one of them is gone."""
    from waystation.model.errors import UnknownTopicError

    try:
        every = await admin.open_transactions(found.partitions)
    except UnknownTopicError:
        return {}
    return {
        one.partition: {"first_offset": one.first_offset, "last_written_at": one.last_written_at}
        for one in every
        if one.producer == found.producer
    }


def _show(told: dict[str, Any]) -> None:
    seconds = told["open_seconds"]
    lasting = "" if seconds is None else f" for {seconds:.1f} s"
    say(
        f"transactional id {told['transactional_id']}: {told['state']}{lasting}, time-out "
        f"{told['timeout_ms'] / 1_000:g} s, producer {told['producer']} epoch {told['epoch']}, "
        f"coordinated at {told['coordinator']}"
    )
    if told["partitions"]:
        titles = ("TOPIC", "PARTITION", "FIRST OFFSET", "LAST WRITE")
        print_table(titles, map(_partition_row, told["partitions"]))


def _partition_row(one: dict[str, Any]) -> tuple[object, ...]:
    first = "-" if one["first_offset"] is None else one["first_offset"]
    return (one["topic"], one["partition"], first, _ago(one["last_written_at"]))


# --- abort ----------------------------------------------------------------------------------


@txn.command(
    epilog=example(
        "waystation txn abort billing-1\n"
        "  waystation txn abort --partition orders:0 --producer 4711"
    )
)
@click.argument("name", metavar="[ID]", required=False)
@click.option("--prepared", is_flag=True, help="Also if it is prepared: its owner counts on it.")
@click.option("--partition", metavar="TOPIC:P", help="Of one that hangs: where.")
@click.option("--producer", type=int, help="Of one that hangs: whose, by producer id.")
@yes_option
@bootstrap_option
@json_option
def abort(
    name: str | None,
    prepared: bool,
    partition: str | None,
    producer: int | None,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Abort a transaction that is open.

    It is that of the transactional ID, or one that hangs in a partition. What it wrote is never
    shown to readers of committed messages. Its producer, if it still runs, is told so by the next
    thing it does.
    """
    if name is not None and partition is None and producer is None:
        _abort_by_name(name, prepared, yes, bootstrap, as_json)
    elif name is None and partition is not None and producer is not None and not prepared:
        _abort_hanging(_place(partition), producer, yes, bootstrap, as_json)
    else:
        raise click.UsageError("name a transactional ID, or --partition and --producer")


def _abort_by_name(name: str, prepared: bool, yes: bool, bootstrap: str, as_json: bool) -> None:
    confirm(f"Abort the open transaction of {name}?", yes)
    ended = with_admin(bootstrap, lambda admin: admin.abort_transaction(name, prepared=prepared))
    if as_json:
        told = {"transactional_id": name, "producer": ended.producer, "epoch": ended.epoch}
        print_json({**told, "aborted": True})
    else:
        say(f"aborted the transaction of {name}, producer {ended.producer} epoch {ended.epoch}")


def _abort_hanging(
    where: "TopicPartition", producer: int, yes: bool, bootstrap: str, as_json: bool
) -> None:
    confirm(f"Abort the transaction of producer {producer} in {where}?", yes)
    ended = with_admin(bootstrap, lambda admin: admin.abort_hanging_transaction(where, producer))
    if as_json:
        print_json({**_hanging(ended), "aborted": True})
    else:
        say(f"aborted the transaction of producer {producer} in {where}")


def _place(text: str) -> "TopicPartition":
    from waystation.model.ids import TopicPartition

    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise click.UsageError(f"--partition {text!r}: must be TOPIC:PARTITION")
    return TopicPartition(topic, int(number))


# --- find-hanging ---------------------------------------------------------------------------


@txn.command("find-hanging", epilog=example("waystation txn find-hanging --topic orders"))
@click.option("--topic", "topics", multiple=True, help="Look into this one; again.  [default: all]")
@click.option(
    "--older-than",
    metavar="D",
    help=f"Last write this long ago.  [default: the broker's {_LONGEST_TIMEOUT}]",
)
@bootstrap_option
@json_option
def find_hanging(
    topics: tuple[str, ...], older_than: str | None, bootstrap: str, as_json: bool
) -> None:
    """Find transactions that nobody will end.

    They are open in a partition and no coordinator knows of them, so that they keep readers of
    committed messages waiting until somebody aborts them. A broker of ours does so by itself.
    """
    given_ms = None if older_than is None else _milliseconds(older_than)

    async def work(admin: "Admin") -> list["OpenTransaction"]:
        older_than_ms = await _longest_timeout_ms(admin) if given_ms is None else given_ms
        return await admin.hanging_transactions(older_than_ms, topics or None)

    found = with_admin(bootstrap, work)
    if as_json:
        for one in found:
            print_json(_hanging(one))
    elif found:
        titles = ("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "FIRST OFFSET", "LAST WRITE")
        print_table(titles, map(_hanging_row, found))
        say("end each with `waystation txn abort --partition TOPIC:P --producer ID`")
    else:
        say("no transaction hangs")


async def _longest_timeout_ms(admin: "Admin") -> int:
    cluster = await admin.describe_cluster()
    options = await admin.describe_configs(broker=min(one.node for one in cluster.brokers))
    found = options.get(_LONGEST_TIMEOUT)
    return _LONGEST_TIMEOUT_MS if found is None or not found.value else int(found.value)


def _hanging(one: "OpenTransaction") -> dict[str, Any]:
    topic, number = one.partition
    return {
        "topic": topic,
        "partition": number,
        "producer": one.producer,
        "epoch": one.epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "first_offset": one.first_offset,
        "last_written_at": one.last_written_at,
    }


def _hanging_row(one: "OpenTransaction") -> tuple[object, ...]:
    written = _ago(one.last_written_at)
    return (*one.partition, one.producer, one.epoch, one.first_offset, written)


# --- outcome --------------------------------------------------------------------------------


@txn.command(epilog=example("waystation txn outcome billing-1 --producer 4711 --epoch 3"))
@click.argument("name", metavar="ID")
@click.option("--producer", type=int, required=True, help="The producer id it was prepared with.")
@click.option("--epoch", type=int, required=True, help="The producer epoch it was prepared with.")
@bootstrap_option
@json_option
def outcome(name: str, producer: int, epoch: int, bootstrap: str, as_json: bool) -> None:
    """Tell what became of a prepared transaction.

    It is known for seven days after the transaction's end.
    """
    found = with_admin(bootstrap, lambda admin: admin.transaction_outcome(name, producer, epoch))
    if as_json:
        told = {"transactional_id": name, "producer": producer, "epoch": epoch}
        print_json({**told, "state": found.state, "at": found.at})
    else:
        print_table(("STATE", "SINCE"), [(found.state, _ago(found.at))])


# --- times ----------------------------------------------------------------------------------


def _milliseconds(duration: str) -> int:
    return int(parse_duration(duration).total_seconds() * 1_000)


def _seconds_since(at_ms: int | None) -> float | None:
    return None if at_ms is None else max(time.time_ns() // 1_000_000 - at_ms, 0) / 1_000


def _ago(at_ms: int | None) -> str:
    seconds = _seconds_since(at_ms)
    return "-" if seconds is None else f"{seconds:.1f} s ago"

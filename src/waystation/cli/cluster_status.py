"""``waystation cluster status``: what an operator asks first."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from waystation.cli.asking import with_admin
from waystation.cli.local_option import cluster_bootstrap_option
from waystation.cli.options import example, json_option, parse_duration
from waystation.cli.output import counted, print_json, print_table, say, shown_bytes

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.cluster_descriptions import BrokerStatus, ClusterStatus

_ROWS_MAX = 20
_LOOK_EVERY_S = 0.5


@click.command(
    epilog=example(
        "waystation cluster status\n"
        "  waystation cluster status --check --json\n"
        "  waystation cluster status --wait 60s && systemctl restart waystation"
    )
)
@click.option("--partitions", "every", is_flag=True, help="List all partitions, not only troubled.")
@click.option("--check", is_flag=True, help="Exit with 1 unless the cluster is healthy.")
@click.option(
    "--wait", "within", metavar="D", help="Wait for that to be so, e.g. 60s; then --check."
)
@cluster_bootstrap_option
@json_option
def status(every: bool, check: bool, within: str | None, bootstrap: str, as_json: bool) -> None:
    """Show brokers, leaders, and what is not as it should be.

    A cluster is healthy if its store answers, somebody decides, every broker that holds replicas
    is alive with all its data directories, every partition is led, and all replicas are in sync.

    The exit code is 0 whenever the state could be told; with --check or --wait, 1 if it is not
    healthy.
    """
    patience_s = 0.0 if within is None else parse_duration(within).total_seconds()
    told, topics = _asked(bootstrap, every, patience_s)
    wrong = problems(told)
    if as_json:
        print_json(_document(told, wrong, topics))
    else:
        _show(told, wrong)
        if every:
            print_table(("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"), topics)
    if wrong and (check or within is not None):
        raise click.exceptions.Exit(1)


def _asked(bootstrap: str, every: bool, patience_s: float) -> "tuple[ClusterStatus, list[Any]]":
    """The state, once it is healthy or patience has ended."""
    from waystation.model.errors import WaystationError

    async def work(admin: "Admin") -> "tuple[ClusterStatus, list[Any]]":
        return await admin.cluster_status(), await _partitions(admin) if every else []

    ends_at = time.monotonic() + patience_s
    while True:
        try:
            told, topics = with_admin(bootstrap, work)
            if not problems(told) or time.monotonic() >= ends_at:
                return told, topics
        except WaystationError:
            # Nobody answers yet: brokers may be on their way.
            if time.monotonic() >= ends_at:
                raise
        time.sleep(_LOOK_EVERY_S)


async def _partitions(admin: "Admin") -> list[Any]:
    return [
        (
            f"{topic.name}-{one.partition}",
            _node(one.leader if one.leader >= 0 else None),
            one.epoch,
            _nodes(one.replicas),
            _nodes(one.in_sync),
        )
        for topic in await admin.list_topics(internal=True)
        for one in topic.partitions
    ]


def problems(told: "ClusterStatus") -> list[str]:
    """Why the cluster is not healthy, worst first; nothing if it is."""
    dead = [one.node for one in told.brokers if not one.alive]
    offline = [
        f"{directory.path} of broker {one.node}"
        for one in told.brokers
        for directory in one.log_dirs or ()
        if directory.error
    ]
    numbers = (
        (told.leaderless_count, "without a leader, neither written nor read"),
        (told.under_min_in_sync_count, "with too few replicas in sync, refusing acks=all"),
        (told.under_replicated_count, "with replicas that are not in sync"),
    )
    found = [f"{counted(count, 'partition')} {what}" for count, what in numbers if count]
    if told.store_silent_ms:
        found.append(
            f"the coordination store has not answered for {told.store_silent_ms / 1_000:.0f} s: "
            "nothing can be created, moved or elected, and all this may be as old. "
            "Remedy: see that most of its servers run and can be reached"
        )
    if told.controller is None:
        found.append("nobody decides: a controller is about to be elected")
    if dead:
        found.append(f"not alive: broker {_nodes(dead)}, which others remember for its replicas")
    if offline:
        found.append(f"offline: {', '.join(offline)}")
    if told.stuck_count:
        found.append(f"{told.stuck_count} replicas of drained brokers have nowhere to go")
    return found


# --- for people -----------------------------------------------------------------------------


def _show(told: "ClusterStatus", wrong: list[str]) -> None:
    decides = "nobody" if told.controller is None else f"broker {told.controller}"
    say(
        f"cluster {told.cluster_id}: {counted(told.topic_count, 'topic')} with "
        f"{counted(told.partition_count, 'partition')}; {decides} decides "
        f"(epoch {told.controller_epoch})"
    )
    titles = ("BROKER", "ADDRESS", "STATE", "RACK", "MACHINE", "REPLICAS", "LEADS", "USED", "FREE")
    print_table(titles, map(_broker_row, told.brokers))
    _list(
        "\nnot as they should be:",
        ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "ELIGIBLE", "STATE"),
        [
            (
                one.partition,
                _node(one.leader),
                _nodes(one.replicas),
                _nodes(one.in_sync),
                _nodes(one.eligible),
                ", ".join(_words(one)),
            )
            for one in told.partitions
        ],
    )
    _list(
        "\non their way:",
        ("PARTITION", "REPLICAS", "TARGET", "WAITS FOR"),
        [
            (one.partition, _nodes(one.replicas), _nodes(one.target), _nodes(one.waiting_for))
            for one in told.reassignments
        ],
    )
    _list(
        "\non drained brokers, and nowhere to go:",
        ("PARTITION", "BROKER"),
        [(one.partition, one.node) for one in told.stuck],
    )
    _list(
        "\nonce led by a broker that may have lacked committed records:",
        ("PARTITION", "IN EPOCH", "NOW LED BY", "EPOCH"),
        [
            (one.partition, one.unclean_epoch, _node(one.leader), one.leader_epoch)
            for one in told.unclean
        ],
    )
    if told.not_preferred_count:
        say(
            f"\n{told.not_preferred_count} of {told.partition_count} partitions are not led by "
            "their preferred leader: waystation cluster elect"
        )
    say("")
    for line in wrong or ["healthy"]:
        say(line)


def _list(heading: str, titles: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    if not rows:
        return
    say(heading)
    print_table(titles, rows[:_ROWS_MAX])
    if len(rows) > _ROWS_MAX:
        say(f"... and {len(rows) - _ROWS_MAX} more: --json has all")


def _broker_row(one: "BrokerStatus") -> tuple[object, ...]:
    used, free = _disk(one)
    return (
        one.node,
        "-" if one.address is None else f"{one.address.host}:{one.address.port}",
        _state(one),
        one.rack or "-",
        one.machine or "-",
        one.replicas,
        one.leaders,
        "-" if used is None else shown_bytes(used),
        "-" if free is None else shown_bytes(free),
    )


def _state(one: "BrokerStatus") -> str:
    words = ["alive" if one.alive else "dead"]
    words += ["leaving"] if one.leaving else []
    words += ["draining"] if one.draining and one.replicas else []
    words += ["drained"] if one.draining and not one.replicas else []
    return ", ".join(words)


def _disk(one: "BrokerStatus") -> tuple[int | None, int | None]:
    """What its logs take, and what is free; directories on one disk share what is free."""
    if not one.log_dirs:
        return None, None
    used = sum(sum(directory.partitions.values()) for directory in one.log_dirs)
    free = [directory.usable_bytes for directory in one.log_dirs if directory.usable_bytes >= 0]
    return used, min(free, default=None)


def _words(one: Any) -> list[str]:
    words = ["offline"] if one.leaderless else []
    words += [f"below min.insync.replicas={one.min_in_sync}"] if one.under_min_in_sync else []
    words += ["under-replicated"] if one.under_replicated else []
    return words


def _node(node: int | None) -> object:
    return "-" if node is None else node


def _nodes(some: Sequence[int]) -> str:
    return ",".join(map(str, some)) or "-"


# --- for scripts ----------------------------------------------------------------------------


def _document(told: "ClusterStatus", wrong: list[str], topics: list[Any]) -> dict[str, Any]:
    brokers = [
        {
            **{key: value for key, value in one._asdict().items() if key != "log_dirs"},
            "address": None if one.address is None else f"{one.address.host}:{one.address.port}",
            "used_bytes": _disk(one)[0],
            "free_bytes": _disk(one)[1],
            "log_dirs": [
                {
                    "path": each.path,
                    "error": each.error.name if each.error else None,
                    "total_bytes": each.total_bytes,
                    "usable_bytes": each.usable_bytes,
                }
                for each in one.log_dirs or ()
            ],
        }
        for one in told.brokers
    ]
    plain = {name: value for name, value in told._asdict().items() if not isinstance(value, tuple)}
    lists = {
        name: [_named(one) for one in getattr(told, name)]
        for name in ("partitions", "reassignments", "stuck", "unclean")
    }
    titles = ("partition", "leader", "epoch", "replicas", "in_sync")
    every = {"all_partitions": [dict(zip(titles, row, strict=True)) for row in topics]}
    return {
        "healthy": not wrong,
        "problems": wrong,
        **plain,
        "brokers": brokers,
        **lists,
        **(every if topics else {}),
    }


def _named(one: Any) -> dict[str, Any]:
    fields = one._asdict()
    topic, number = fields.pop("partition")
    return {"topic": topic, "partition": number, **fields}

"""``waystation cluster`` on this machine: up, down, start, kill, logs."""

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from waystation.cli.asking import confirm
from waystation.cli.local_option import local_option
from waystation.cli.options import example, json_option, pairs, yes_option
from waystation.cli.output import print_json, print_table, say, write
from waystation.cli.store_option import shared_store_option

if TYPE_CHECKING:
    from waystation.node.background import Background
    from waystation.node.local import LocalNodes

_SIGNALS = ("KILL", "TERM", "STOP", "CONT")
_FOLLOW_EVERY_S = 0.2


# --- up and down ----------------------------------------------------------------------------


@click.command(
    epilog=example(
        "waystation cluster up --nodes 3\n"
        "  waystation cluster up --nodes 5\n"
        "  waystation cluster up --store zookeeper://zk1:2181/demo --data-dir ./demo"
    )
)
@click.option("--nodes", type=click.IntRange(1, 100), help="How many brokers.  [default: 3]")
@local_option
@shared_store_option("A store that runs already, instead of an etcd of its own.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The first broker's; 0 is any.  [default: 9092]"
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65_535),
    help="The first broker's HTTP port.  [default: 8090]",
)
@click.option("--set", "options", multiple=True, metavar="NAME=VALUE", help="For all brokers.")
@json_option
def up(
    nodes: int | None,
    folder: Path,
    store: str | None,
    port: int | None,
    http_port: int | None,
    options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start a cluster on this machine, in the background.

    An etcd and some brokers, all on loopback, with everything they write in one directory. What
    runs already is left alone, so that `up` also starts again what was stopped or killed, or
    ended with the machine. More nodes may be added to a cluster; ports and options are kept.

    With three nodes or more, topics get three replicas unless they say how many; two of them
    must have what is acknowledged with acks=all.
    """
    from waystation.node.local import LocalNodes
    from waystation.node.local_plan import Wish

    wish = Wish(
        nodes=nodes,
        store=store,
        options=pairs(options, "--set"),
        kafka_port=port,
        http_port=http_port,
    )
    local = LocalNodes(folder)
    _check_options(wish.options)
    if wish.store is not None and not local.exists:
        _check_reachable(wish.store)
    with local.alone():
        local.adopt(wish)
        started = local.start(local.names, say)
        _tell(local, started, as_json)


def _check_options(options: dict[str, str]) -> None:
    """Refuse what no broker would start with, before it is kept for every later start."""
    from waystation.model.errors import InvalidSettingsError
    from waystation.node.settings import load

    try:
        load([("--set", options)])
    except InvalidSettingsError as error:
        raise click.UsageError(
            f"{error}\nRemedy: `waystation serve --options` lists every option."
        ) from error


def _check_reachable(store: str) -> None:
    """Refuse a store that nobody answers at, before anything is kept or started."""
    from waystation.node.stores import with_store

    with_store(store, lambda opened: opened.get("cluster"))


def _tell(local: "LocalNodes", started: list[str], as_json: bool) -> None:
    plan, running = local.plan, local.running()
    rows = [
        (broker.name, running[broker.name], broker.kafka, broker.http) for broker in plan.brokers
    ]
    if as_json:
        brokers = [
            {"broker": one.id, "pid": pid, "kafka": kafka, "http": http}
            for one, (_, pid, kafka, http) in zip(plan.brokers, rows, strict=True)
        ]
        told = {"directory": str(local.folder), "store": plan.store, "started": started}
        print_json({**told, "bootstrap": plan.bootstrap, "brokers": brokers})
        return
    if plan.etcd_ports:
        rows.insert(0, ("etcd", running["etcd"], f"127.0.0.1:{plan.etcd_ports[0]}", "-"))
    print_table(("PROCESS", "PID", "ADDRESS", "HTTP"), rows)
    word = f"started {', '.join(started)}" if started else "everything was running already"
    say(f"cluster ready in {local.folder}: {word}")
    say(f"export WAYSTATION_BOOTSTRAP={plan.bootstrap}")


@click.command(epilog=example("waystation cluster down\n  waystation cluster down --delete"))
@local_option
@click.option("--delete", is_flag=True, help="And delete all its data.")
@yes_option
@json_option
def down(folder: Path, delete: bool, yes: bool, as_json: bool) -> None:
    """Stop the cluster that `up` started.

    Its data stays, and the next `up` goes on with it, unless --delete is given.
    """
    from waystation.node.local import LocalNodes

    local = LocalNodes(folder)
    plan = local.plan
    if delete:
        confirm(f"Delete all data of the cluster in {local.folder}?", yes)
    with local.alone():
        stopped = local.stop(say)
        if delete:
            local.delete()
    if as_json:
        print_json({"directory": str(local.folder), "stopped": stopped, "deleted": delete})
        return
    word = f"stopped {', '.join(stopped)}" if stopped else "nothing was running"
    say(f"{word}; the data {'is deleted' if delete else f'stays in {local.folder}'}")
    if delete and plan.etcd_ports is None:
        say(f"what the brokers kept at {plan.store} is still there: delete that folder by hand")


# --- one process ----------------------------------------------------------------------------


@click.command(epilog=example("waystation cluster start 2"))
@click.argument("name", metavar="N|etcd")
@local_option
@json_option
def start(name: str, folder: Path, as_json: bool) -> None:
    """Start one broker of the cluster, or etcd, that does not run."""
    from waystation.node.local import LocalNodes

    local = LocalNodes(folder)
    with local.alone():
        wanted = local.process(name)
        started = local.start([wanted.name], say)
    _told(wanted, "started" if started else "running already", as_json)


@click.command(
    epilog=example("waystation cluster kill 2\n  waystation cluster kill 2 --signal STOP")
)
@click.argument("name", metavar="N|etcd")
@click.option(
    "--signal",
    "word",
    type=click.Choice(_SIGNALS, case_sensitive=False),
    default="KILL",
    show_default=True,
    help="TERM stops it cleanly; STOP freezes it until CONT.",
)
@local_option
@json_option
def kill(name: str, word: str, folder: Path, as_json: bool) -> None:
    """Kill one broker of the cluster, or etcd, to see what happens.

    `start` or `up` starts it again; nothing that was acknowledged is lost.
    """
    from waystation.node.local import LocalNodes
    from waystation.node.local_plan import LocalClusterError

    local = LocalNodes(folder)
    process = local.process(name)
    if not process.signal(signal.Signals[f"SIG{word}"]):
        raise LocalClusterError(f"{process.name} does not run")
    if word in ("KILL", "TERM") and not process.ended(60.0):
        raise LocalClusterError(f"{process.name} still runs 60 s later; see {process.log}")
    done = {"KILL": "killed", "TERM": "stopped", "STOP": "frozen", "CONT": "running again"}
    _told(process, done[word], as_json)


def _told(process: "Background", word: str, as_json: bool) -> None:
    if as_json:
        print_json({"process": process.name, "pid": process.pid, "state": word})
    else:
        say(f"{process.name}: {word}")


@click.command(epilog=example("waystation cluster logs 2 -f"))
@click.argument("name", metavar="N|etcd")
@click.option("-f", "--follow", is_flag=True, help="Go on as it goes on, until Ctrl-C.")
@click.option("-n", "--lines", default=50, show_default=True, help="How many of the last lines.")
@local_option
def logs(name: str, follow: bool, lines: int, folder: Path) -> None:
    """Show what one broker of the cluster, or etcd, says."""
    from waystation.node.local import LocalNodes
    from waystation.node.local_plan import LocalClusterError

    process = LocalNodes(folder).process(name)
    if not process.log.exists():
        raise LocalClusterError(f"{process.name} was never started")
    with process.log.open("rb") as log:
        last = log.read().splitlines(keepends=True)[-lines:] if lines > 0 else []
        write(b"".join(last))
        while follow:
            if more := log.read():
                write(more)
            else:
                time.sleep(_FOLLOW_EVERY_S)

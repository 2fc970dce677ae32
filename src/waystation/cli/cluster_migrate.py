"""``waystation cluster migrate``: a single node grows into a cluster, with its data."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from waystation.cli.asking import confirm
from waystation.cli.options import example, json_option, yes_option
from waystation.cli.output import counted, print_json, say
from waystation.cli.store_option import shared_store_option

if TYPE_CHECKING:
    from waystation.coordination.sqlite_items import SqliteItems
    from waystation.node.migration import Migration


@click.command(
    epilog=example(
        "waystation cluster migrate --data-dir ./data --store etcd://10.0.0.1,10.0.0.2,10.0.0.3\n"
        "  waystation serve --data-dir ./data --store etcd://10.0.0.1,10.0.0.2,10.0.0.3"
    )
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default="./data",
    show_default=True,
    help="The node's first data directory; the node must be stopped.",
)
@shared_store_option("etcd://HOST:PORT,... or zookeeper://HOST:PORT,...", required=True)
@click.option("--dry-run", is_flag=True, help="Say what would move, and look at the store.")
@yes_option
@json_option
def migrate(data_dir: Path, store: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Move a single node's metadata to etcd or ZooKeeper.

    Topics, options and everything else that the node keeps in cluster.sqlite is copied, read
    back and compared. The file stays, marked, so that the node no longer starts on it by
    mistake. Its messages stay where they are. Killed in the middle, the same command goes on.

    Then start the node with the same --store, and others with ids of their own beside it.
    """
    from waystation.node.migration import opened, planned

    with opened(data_dir) as file:
        what = planned(file, data_dir)
        content = f"{counted(what.topics, 'topic')} with {counted(what.partitions, 'partition')}"
        if not dry_run:
            confirm(f"Move the metadata of {content} from {data_dir} to {store}?", yes)
        done = _carry_out(file, data_dir, what, store, dry_run)
    if as_json:
        told = {"cluster_id": what.cluster_id, "topics": what.topics, "store": store}
        print_json({**told, "partitions": what.partitions, "moved": done and not dry_run})
    elif dry_run and done:
        say(f"would move {content} of cluster {what.cluster_id} to {store}")
    elif done:
        say(f"moved {content} of cluster {what.cluster_id} to {store}")
    else:
        say(f"cluster {what.cluster_id} was at {store} already")
    if not as_json and not dry_run:
        say(f"now: waystation serve --data-dir {data_dir} --store {store}")


def _carry_out(
    file: "SqliteItems", data_dir: Path, what: "Migration", store: str, dry_run: bool
) -> bool:
    from waystation.node.installing import check
    from waystation.node.migration import migrate
    from waystation.node.stores import with_store

    if dry_run:
        return with_store(store, lambda opened: check(opened, what.items))
    return with_store(store, lambda opened: migrate(file, data_dir, what, opened, store))

"""``waystation cluster recover``: the store is lost, the brokers' directories are not."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from waystation.cli.asking import confirm
from waystation.cli.options import example, json_option, yes_option
from waystation.cli.output import counted, print_json, print_table, say
from waystation.cli.store_option import shared_store_option

if TYPE_CHECKING:
    from waystation.cluster.rebuilding import Options, Rebuilt, Survey
    from waystation.model.ids import TopicId

_STORE_FILE = "cluster.sqlite"


@click.command(
    epilog=example(
        "waystation cluster recover --survey-only --data-dir /var/lib/waystation > broker-1.json\n"
        "  waystation cluster recover --store etcd://10.0.0.1 --survey broker-1.json \\\n"
        "      --survey broker-2.json --survey broker-3.json --dry-run"
    )
)
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A data directory of a stopped broker of this machine; again for more.",
)
@click.option(
    "--survey",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="What --survey-only wrote on another machine; again for more.",
)
@click.option("--survey-only", is_flag=True, help="Write what the directories hold, and end.")
@shared_store_option("An empty etcd://HOST:PORT,... or zookeeper://HOST:PORT,...")
@click.option("--dry-run", is_flag=True, help="Say what would be decided, and write nothing.")
@yes_option
@json_option
def recover(
    data_dirs: tuple[Path, ...],
    files: tuple[Path, ...],
    survey_only: bool,
    store: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Rebuild lost metadata from what data directories hold.

    For when etcd or ZooKeeper lost its data and there is no backup of it. Stop every broker,
    survey ALL of them, and write the result into an empty store: what was not surveyed does not
    exist for the new cluster, and is deleted when that broker joins it.

    Messages, topics, partitions, groups and transactions come back, and options and views as
    the brokers wrote them down last; topics keep everything until you set their retention.
    """
    from waystation.node.surveying import survey
    from waystation.runtime.clock import SystemClock
    from waystation.storage.disk import RealDisk

    if not data_dirs and not files:
        raise click.UsageError("name --data-dir or --survey, of every broker")
    if not survey_only and store is None:
        raise click.UsageError("name the empty --store, or --survey-only")
    found = survey(data_dirs, RealDisk(), SystemClock())
    if survey_only:
        _write_down(found)
        return
    assert store is not None
    made = _decided([*found, *_read(files)], _known_options(data_dirs))
    if not as_json:
        _tell(made)
    if not dry_run:
        confirm(f"Write this as cluster {made.cluster_id} into {store}?", yes)
    done = _carry_out(store, made, dry_run)
    if as_json:
        print_json(
            {
                "cluster_id": made.cluster_id,
                "topics": made.topics,
                "partitions": made.partitions,
                "lost": [str(one) for one in made.lost],
                "notes": made.notes,
                "store": store,
                "written": done and not dry_run,
            }
        )
    elif not done:
        nothing = "would be" if dry_run else "was"
        say(f"{store} has cluster {made.cluster_id} already: nothing {nothing} written")
    elif not dry_run:
        say(f"cluster {made.cluster_id} is at {store}: start the brokers with that --store")


def _write_down(found: "list[Survey]") -> None:
    from waystation.cli.survey_files import document

    for one in found:
        print_json(document(one))
        say(f"node {one.node} of cluster {one.cluster_id}: {counted(len(one.replicas), 'replica')}")


def _read(files: tuple[Path, ...]) -> "list[Survey]":
    if not files:
        return []
    from waystation.cli.survey_files import read_surveys

    return [one for file in files for one in read_surveys(file)]


def _known_options(data_dirs: tuple[Path, ...]) -> "dict[TopicId, Options]":
    """Options that a node's own file has, from before its metadata moved; better than none."""
    from waystation.cluster.image import ClusterImage
    from waystation.coordination.sqlite_items import SqliteItems

    known: dict[TopicId, Options] = {}
    for path in data_dirs:
        if not (path / _STORE_FILE).is_file():
            continue
        file = SqliteItems(path / _STORE_FILE, even_if_moved=True)
        try:
            snapshot = file.get("")
        finally:
            file.close()
        image = ClusterImage.from_items(snapshot.items, snapshot.revision)
        known |= {
            topic.id: image.topic_options(name).options for name, topic in image.topics.items()
        }
    return known


def _decided(surveys: "list[Survey]", options: "dict[TopicId, Options]") -> "Rebuilt":
    from uuid import UUID, uuid5

    from waystation.cluster.rebuilding import rebuild
    from waystation.model.ids import uuid_text

    # The same directories give the same id: interrupted, the work is known again.
    topics = sorted({str(each.topic_id) for one in surveys for each in one.replicas})
    return rebuild(surveys, uuid_text(uuid5(UUID(int=0), ",".join(topics))), options)


def _tell(made: "Rebuilt") -> None:
    print_table(
        ("CLUSTER", "TOPICS", "PARTITIONS", "LOST"),
        [(made.cluster_id, made.topics, made.partitions, len(made.lost))],
    )
    for note in made.notes:
        say(f"- {note}")


def _carry_out(store: str, made: "Rebuilt", dry_run: bool) -> bool:
    from waystation.node.installing import check, install
    from waystation.node.stores import with_store

    if dry_run:
        return with_store(store, lambda opened: check(opened, made.items))
    return with_store(store, lambda opened: install(opened, made.items))

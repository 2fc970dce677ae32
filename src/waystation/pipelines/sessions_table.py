"""Sessions as rows of a table, each once.

A table belongs to the checkpoint that began it: one that was written with another is refused, since
everything in it would be told again.
"""

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from waystation.pipelines.archive_start import whole_path
from waystation.pipelines.checkpoint import Checkpoint
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import as_option
from waystation.pipelines.topic_output import pinned_sink, started
from waystation.spark.table_kinds import find_kind
from waystation.spark.table_location import Location

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["start_into_table"]

_STORAGE = "storage."


def start_into_table(
    frame: "DataFrame",
    *,
    lake: str,
    checkpoint: "str | Path",
    sink_id: str | None,
    first_sink_id: str,
    available_now: bool,
    every_s: float,
    name: str,
    options: Mapping[str, object] | None,
) -> "StreamingQuery":
    """Start writing ``frame`` into the table ``lake``; ``options`` are the table's, and win."""
    lake = whole_path(lake)
    notes = Checkpoint(frame.sparkSession, str(checkpoint))
    given = {name: as_option(value) for name, value in (options or {}).items()}
    if not notes.is_used() and _is_table(lake, given):
        raise JobError(
            f"--lake {lake} is a table already, which --checkpoint {notes.folder} knows nothing of:"
            " its sessions would be told again. Remedy: give the checkpoint that it was written "
            "with, or another folder for the table"
        )
    # A name of its own for every checkpoint: to a table, an old one is a batch that it has.
    known = pinned_sink(notes, {"lake": lake}, sink_id, f"{first_sink_id}-{uuid.uuid4().hex}")
    writer = frame.writeStream.format("waystation.table").outputMode("append")
    for option, value in {"path": lake, "sinkId": known, **given}.items():
        writer = writer.option(option, value)
    return started(
        writer,
        checkpoint=notes.folder,
        name=name,
        available_now=available_now,
        every_s=every_s,
    )


def _is_table(lake: str, options: Mapping[str, str]) -> bool:
    storage = {
        name.lower().removeprefix(_STORAGE): value
        for name, value in options.items()
        if name.lower().startswith(_STORAGE)
    }
    return find_kind(Location.of(lake, tuple(sorted(storage.items())))) is not None

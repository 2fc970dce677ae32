r"""``replay``: messages of the past into a topic once more, each once, whatever dies on the way.

They come from the table of a lake or from topics, between two offsets, times or days, as far as
a condition in Spark SQL holds.  Key, timestamp and headers stay, headers tell where each message
came from (``replay_rows.py``), and messages of one source partition keep their order, and so do
those of one key.

What is to be sent is fixed when a replay first starts, and pinned in its checkpoint: the version
of the table or the offsets of the topics, the condition, and the name under which the brokers
know it.  It is sent in chunks (``replay_plan.py``), each one batch of the sink.  A replay that was
killed goes on with the chunk at hand, and the sink drops that chunk if it has it.  One that has
ended does nothing when it is started again.

    waystation pipeline replay --lake lake/orders --from 2026-11-01 --until 2026-11-02 \
      --where "value.amount > 100" --to orders-again --checkpoint lake/replay-1
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waystation.pipelines.failures import JobError
from waystation.pipelines.job import Job, as_option, bounded_options, pairs, session
from waystation.pipelines.progress import BatchReport, Interrupts, interrupts, say, showing
from waystation.pipelines.replay_selection import Counted, Selection, count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waystation.pipelines.replay_sending import Replayed

__all__ = ["Selection", "command", "count", "replay"]

_CHUNK_OFFSETS = 200_000
_BY_NAME = "{topic}"


def replay(
    spark: "SparkSession",
    selection: Selection,
    *,
    to: str,
    checkpoint: str | Path,
    to_bootstrap: str | None = None,
    rate: float = 0,
    chunk_offsets: int = _CHUNK_OFFSETS,
    keep_partitions: bool = False,
    sink_options: Mapping[str, object] | None = None,
    tell: Callable[[BatchReport], None] = lambda _: None,
    interrupted: Interrupts | None = None,
) -> "Replayed":
    """Send what is selected into the topic ``to``, and return when all of it is there.

    ``{topic}`` in ``to`` stands for the topic that a message was in.  ``rate`` is in messages per
    second, 0 as fast as it goes.  With ``keep_partitions`` messages go to the partition that they
    were in, not to that of their key.
    """
    from waystation.pipelines.checkpoint import Checkpoint
    from waystation.pipelines.replay_sending import KIND, Sending, begun
    from waystation.pipelines.topic_log import check_target

    _check_numbers(rate, chunk_offsets)
    into = to_bootstrap or selection.bootstrap
    if _BY_NAME not in to:
        check_target(into, to, "--to")
    notes = Checkpoint(spark, str(checkpoint))
    run = begun(spark, notes, selection, to=to, keep_partitions=keep_partitions)
    told = {
        "bootstrap.servers": into,
        **({} if _BY_NAME in to else {"topic": to}),
        **(sink_options or {}),
        "sinkId": f"{KIND}-{run.name}",
    }
    sending = Sending(notes, run, {name: as_option(one) for name, one in told.items()})
    return sending.all(rate, chunk_offsets, tell, interrupted or Interrupts())


def _check_numbers(rate: float, chunk_offsets: int) -> None:
    if rate < 0 or chunk_offsets < 1:
        raise JobError(
            f"rate is {rate}, chunk_offsets {chunk_offsets}: the first must not be negative, the "
            "second at least 1"
        )


# --- the command ------------------------------------------------------------------------------

_EXAMPLE = """
\b
Example:
  waystation pipeline replay --lake ./lake/orders --from 2026-11-01 --until 2026-11-02 \\
    --where "value.amount > 100" --to orders-again --checkpoint ./lake/replay-1
  waystation pipeline replay --topics orders --from 2026-11-15T12:00:00Z --rate 500 \\
    --to orders-again --checkpoint ./lake/replay-2
"""


@click.command("replay", epilog=_EXAMPLE)
@click.option("--lake", metavar="DIR", help="The table to replay; then --topics may choose.")
@click.option("--version", type=click.IntRange(0), help="An older version of it.  [newest]")
@click.option("--from", "since", metavar="WHEN", help="A day, time, offset, or offsets as JSON.")
@click.option("--until", metavar="WHEN", help="The same for the end, which is not sent.")
@click.option("--where", metavar="SQL", help="Only what this condition of Spark SQL holds for.")
@click.option("--to", metavar="TOPIC", help="The topic, which must exist; {topic} is the old one.")
@click.option("--to-bootstrap", metavar="HOST:PORT", help="Its brokers.  [default: --bootstrap]")
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=0.0,
    metavar="N",
    help="Messages per second at most, on average over some seconds.  [no limit]",
)
@click.option(
    "--chunk",
    "chunk_offsets",
    type=click.IntRange(1),
    default=_CHUNK_OFFSETS,
    show_default=True,
    metavar="N",
    help="Offsets per transaction.",
)
@click.option("--keep-partitions", is_flag=True, help="Send to the partitions of old.")
@click.option("--dry-run", is_flag=True, help="Count what would be sent, and send nothing.")
@click.option(
    "--table-option",
    "table_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the table, e.g. storage.aws_region=eu-west-1; again.",
)
@click.option(
    "--sink-option",
    "sink_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the sink, e.g. compression=zstd; again.",
)
@bounded_options
def command(job: Job, **given: Any) -> None:
    """Send messages of the past into a topic once more, each once.

    They keep key, timestamp, headers and order, and get headers that say where they are from.
    Started again with the same --checkpoint, a replay goes on where it was. Ctrl-C lets the chunk
    at hand finish; a second one stops at once.
    """
    selection = _selected(job, given)
    if given.pop("dry_run"):
        _told_counts(count(session(job, "replay"), selection), json_output=job.json_output)
        return
    to = given.pop("to")
    if to is None or job.checkpoint is None:
        raise click.UsageError(
            "--to TOPIC and --checkpoint DIR are needed: where the messages go, and where to "
            "remember how far they are"
        )
    options = pairs(given.pop("sink_options"), "--sink-option")
    # Before we take signals: Spark has a handler of its own, which would end the chunk at hand.
    spark = session(job, f"replay into {to}")
    with interrupts(raising=True) as interrupted, showing(json_output=job.json_output) as tell:
        done = replay(
            spark,
            selection,
            to=to,
            checkpoint=job.checkpoint,
            sink_options=options,
            tell=tell,
            interrupted=interrupted,
            **given,
        )
    _told_end(done, json_output=job.json_output)


def _selected(job: Job, given: dict[str, Any]) -> Selection:
    """Take what selects messages out of what was given."""
    names = ("lake", "version", "since", "until", "where")
    return Selection(
        bootstrap=job.bootstrap,
        topics=job.topics,
        pattern=job.pattern,
        source_options=job.source_options(),
        table_options=pairs(given.pop("table_options"), "--table-option"),
        **{name: given.pop(name) for name in names},
    )


def _told_counts(found: list[Counted], *, json_output: bool) -> None:
    total = sum(one.messages for one in found)
    if json_output:
        rows = [one._asdict() for one in found]
        click.echo(json.dumps({"messages": total, "partitions": rows}))
        return
    for one in found:
        click.echo(
            f"{one.topic}-{one.partition}: {one.messages:,} messages, offsets {one.first_offset} "
            f"to {one.last_offset}, {one.first_time} to {one.last_time}"
        )
    click.echo(f"{total:,} messages would be sent")


def _told_end(done: "Replayed", *, json_output: bool) -> None:
    if json_output:
        click.echo(json.dumps(done._asdict()))
        return
    how = "ended" if done.ended else "stopped; the same command goes on"
    say(f"{how}: {done.messages:,} messages sent, replay.run is {done.run}")


if __name__ == "__main__":
    command()

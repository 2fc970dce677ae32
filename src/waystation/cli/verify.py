"""``waystation verify``: does this cluster keep its promises?  A workload, and a judgement."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from waystation.cli.options import bootstrap_option, json_option
from waystation.cli.output import print_json, say
from waystation.cli.progress import progress as bar
from waystation.model.errors import RequestTimedOutError, WaystationError

if TYPE_CHECKING:
    from waystation.testing.checker import Verdict
    from waystation.testing.workload import Workload

EXAMPLE = """
\b
Example:
  waystation verify --seconds 60
  waystation verify --plain --rate 5000 --bootstrap broker-1:9092,broker-2:9092
  waystation verify --check waystation-verify-1a2b3c4d.jsonl
"""

_SHOWN = 20


@click.command(epilog=EXAMPLE)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30,
    show_default=True,
    help="How long to work.",
)
@click.option(
    "--transactions/--plain",
    default=True,
    show_default=True,
    help="Write in transactions, and process what was written; or write without.",
)
@click.option("--topics", type=click.IntRange(1, 100), default=2, show_default=True)
@click.option("--partitions", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option("--writers", type=click.IntRange(1, 100), default=2, show_default=True)
@click.option("--readers", type=click.IntRange(0, 100), default=2, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=500,
    show_default=True,
    help="Messages a second, of all writers together.",
)
@click.option(
    "--aborts",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    help="The share of transactions that are aborted.",
)
@click.option(
    "--history",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write what happened.  [default: waystation-verify-ID.jsonl]",
)
@click.option("--keep-topics", is_flag=True, help="Leave the topics; they stay if all is not well.")
@click.option(
    "--check",
    "recorded",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Judge this history instead of writing one; again for more files of the same.",
)
@bootstrap_option
@json_option
def verify(
    seconds: float,
    transactions: bool,
    topics: int,
    partitions: int,
    writers: int,
    readers: int,
    rate: float,
    aborts: float,
    path: Path | None,
    keep_topics: bool,
    recorded: tuple[Path, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Check by experiment that a cluster loses, repeats, reorders and invents nothing.

    Writes to topics of its own (waystation-verify-ID-N), reads them meanwhile and at the end, and
    compares what was read with what was sent, acknowledged, committed and aborted. Restart
    brokers or kill them while it runs: that is what it is for. Ends with 1 if it finds anything.
    """
    if recorded:
        verdict = _judged(recorded)
        _print(verdict, recorded, as_json)
        _end(verdict)
        return
    name = f"waystation-verify-{uuid4().hex[:8]}"
    path = path or Path(f"{name}.jsonl")
    if path.exists():
        raise click.UsageError(f"{path} exists already: give --history another name")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path.parent} is no directory: give --history another")
    from waystation.testing.workload import Workload

    load = Workload(
        bootstrap=bootstrap,
        name=name,
        seconds=seconds,
        topics=topics,
        partitions=partitions,
        writers=writers,
        readers=readers,
        messages_per_s=rate,
        transactions=transactions,
        aborts=aborts,
        seed=uuid4().int,
    )
    _experience(load, path, keep_topics, as_json)


def _experience(load: "Workload", path: Path, keep_topics: bool, as_json: bool) -> None:
    """Let the workload run, and judge what it wrote down, also if it did not come to its end."""
    from waystation.runtime.loops import run

    run(load.create_topics())
    left = f"its topics {load.name}-* stay, its history is {path}"
    trouble = None
    try:
        run(_work(load, path))
    except WaystationError as error:
        trouble = error
    except KeyboardInterrupt:
        say(left)
        raise
    verdict = _judged((path,))
    if trouble or verdict.acknowledged:
        _print(verdict, (path,), as_json)
    if trouble or verdict.findings or keep_topics:
        say(left)
    else:
        _tidy_up(load)
    if trouble is not None:
        raise trouble
    if not verdict.acknowledged:
        raise NothingToJudgeError(path)
    _end(verdict)


def _tidy_up(load: "Workload") -> None:
    """Delete the topics; the verdict stands, whatever comes of that."""
    from waystation.runtime.loops import run

    try:
        run(load.tidy_up())
    except WaystationError as error:
        say(f"note: its topics {load.name}-* could not all be deleted: {error}")


async def _work(load: "Workload", path: Path) -> None:
    from waystation.testing.history import HistoryFile

    watched = sys.stderr.isatty()
    with HistoryFile(path) as file, bar("verifying", int(load.seconds), wanted=watched) as advance:
        watching = asyncio.ensure_future(_each_second(advance))
        try:
            await load.run(file.write)
        finally:
            watching.cancel()


async def _each_second(advance: Callable[[int], None]) -> None:
    while True:
        await asyncio.sleep(1)
        advance(1)


class NothingToJudgeError(RequestTimedOutError):
    """A workload that came to nothing proves nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no message was acknowledged: the notes in {path} say why")


# --- the judgement ----------------------------------------------------------------------------


def _judged(paths: tuple[Path, ...]) -> "Verdict":
    from waystation.testing.checker import check
    from waystation.testing.history import read_histories

    return check(read_histories(paths))


def _print(verdict: "Verdict", paths: tuple[Path, ...], as_json: bool) -> None:
    if as_json:
        findings = [{"kind": one.kind, "what": one.what} for one in verdict.findings]
        histories = [str(path) for path in paths]
        print_json(verdict._asdict() | {"findings": findings, "histories": histories})
    else:
        _tell_people(verdict)


def _end(verdict: "Verdict") -> None:
    """With 1 if the verdict is a bad one."""
    if verdict.findings:
        raise click.exceptions.Exit(1)


def _tell_people(verdict: "Verdict") -> None:
    click.echo(
        f"{verdict.writes} messages sent, {verdict.acknowledged} acknowledged, {verdict.reads} "
        f"readings; transactions: {verdict.committed} committed, {verdict.aborted} aborted, "
        f"{verdict.unknown} whose end the writer did not learn"
    )
    for finding in verdict.findings[:_SHOWN]:
        click.echo(f"BAD   {finding}")
    if len(verdict.findings) > _SHOWN:
        click.echo(f"BAD   and {len(verdict.findings) - _SHOWN} more")
    for kind, many in Counter(one.kind for one in verdict.findings).items():
        click.echo(f"      {kind}: {many}")
    if not verdict.complete:
        say("note: nobody read to the end, so that what was lost there cannot be seen")
    if not verdict.findings:
        click.echo("ok    nothing lost, repeated, reordered, torn or invented")

"""What all jobs share: where the topics are, where Spark is, when to run.

A job is a function that users import and a command that they type.  The command is given a
``Job``, starts Spark with ``session``, reads with ``source`` and watches with ``follow``::

    @click.command()
    @job_options
    def command(job: Job) -> None:
        spark = session(job, "count")
        print(source(spark, job, stream=False).count())

Whatever ends a command early is one line: a mistake of the user names the option, a failure of
Spark is reduced to its cause.  Nothing here imports Spark, so that ``--help`` is quick and works
without it.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from waystation.model.errors import WaystationError
from waystation.pipelines.failures import JobError, JobFailedError, readable
from waystation.pipelines.progress import follow
from waystation.pipelines.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "Job",
    "JobError",
    "JobFailedError",
    "as_option",
    "bounded_options",
    "follow",
    "job_options",
    "look_options",
    "pairs",
    "session",
    "source",
    "subscription",
]

F = TypeVar("F", bound=Callable[..., Any])

FORMAT = "waystation"
"""The name of our data source in Spark."""


@dataclass(frozen=True)
class Job:
    """What was asked for on the command line."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    master: str | None = None
    checkpoint: str | None = None
    available_now: bool = False
    every_s: float = 10.0
    conf: tuple[str, ...] = ()
    json_output: bool = False
    group: str | None = None
    options: tuple[str, ...] = ()

    def source_options(self) -> dict[str, str]:
        """What the source is told beyond topics and brokers."""
        return pairs(self.options, "--option")

    def streaming(self) -> dict[str, Any]:
        """What every job that goes on for ever is told, by the names of its arguments."""
        return {
            "bootstrap": self.bootstrap,
            "topics": self.topics,
            "pattern": self.pattern,
            "group": self.group,
            "available_now": self.available_now,
            "every_s": self.every_s,
            "source_options": self.source_options(),
        }


def source(
    spark: "SparkSession",
    job: Job | Mapping[str, Any],
    *,
    stream: bool,
    schema: "StructType | str | None" = None,
    **options: object,
) -> "DataFrame":
    """The topics of ``job`` as a frame: all that is there, or all that comes.

    Instead of a ``Job``, a mapping with ``bootstrap``, ``topics`` or ``pattern``, and ``group``.
    ``options`` are those of the source, and win.  A narrower ``schema`` is faster: columns that it
    leaves out are never copied.
    """
    asked = job if isinstance(job, Job) else Job(**job)
    told: dict[str, object] = {
        "bootstrap.servers": asked.bootstrap,
        **subscription(asked.topics, asked.pattern),
        **({"groupId": asked.group} if asked.group and stream else {}),
        **asked.source_options(),
        **options,
    }
    reader: Any = (spark.readStream if stream else spark.read).format(FORMAT)
    if schema is not None:
        reader = reader.schema(schema)
    frame: DataFrame = reader.options(**{name: as_option(one) for name, one in told.items()}).load()
    return frame


def subscription(topics: str | Sequence[str], pattern: str | None = None) -> dict[str, str]:
    """The source's option for these topics, or for all whose names match."""
    if pattern is not None:
        return {"subscribePattern": pattern}
    names = topics.split(",") if isinstance(topics, str) else topics
    named = ",".join(name.strip() for name in names if name.strip())
    return {"subscribe": named} if named else {}


def as_option(value: object) -> str:
    """As Spark writes values of options."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- the command line -----------------------------------------------------------------------


def job_options(command: F) -> F:
    """The options of a job that goes on; the command gets them as ``job``."""
    return _with_options(command, [*_COMMON, *_STREAMING])


def look_options(command: F) -> F:
    """The options of a job that looks once and ends; the command gets them as ``job``."""
    return _with_options(command, _COMMON)


def bounded_options(command: F) -> F:
    """The options of a job that ends by itself and may read something else than topics."""
    return _with_options(command, [*_COMMON, _CHECKPOINT, _OPTION], topics_needed=False)


def _with_options(
    command: F, options: Sequence[Callable[..., Any]], *, topics_needed: bool = True
) -> F:
    @functools.wraps(command)
    def run(**given: Any) -> Any:
        job = _job(given, topics_needed=topics_needed)
        try:
            return command(job=job, **given)
        except WaystationError as error:
            raise click.ClickException(str(error)) from error
        except Exception as error:  # Spark's, if it is one that a user may mend
            if not _is_of_spark(error):
                raise
            raise click.ClickException(readable(error)) from error

    for option in reversed(options):
        run = option(run)
    return run  # type: ignore[return-value]  # the command, with a job in place of its options


_COMMON = (
    click.option(
        "--bootstrap",
        default="localhost:9092",
        envvar="WAYSTATION_BOOTSTRAP",
        show_default=True,
        metavar="HOST:PORT",
        help="A broker, or several separated by commas. Environment: WAYSTATION_BOOTSTRAP.",
    ),
    click.option("--topics", metavar="A,B", help="The topics, separated by commas."),
    click.option("--topic-pattern", metavar="RE", help="All topics whose whole name matches."),
    click.option(
        "--master", help="The Spark to run on, e.g. spark://host:7077.  [default: local[*]]"
    ),
    click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; again."),
    click.option("--json", "json_output", is_flag=True, help="Print JSON, for scripts."),
)
_CHECKPOINT = click.option(
    "--checkpoint", metavar="DIR", help="Where Spark remembers how far it is."
)
_OPTION = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the source, e.g. maxOffsetsPerTrigger=1000000; again.",
)
_STREAMING = (
    click.option("--group", metavar="NAME", help="The group that shows the job's progress."),
    _CHECKPOINT,
    click.option("--available-now", is_flag=True, help="Read what there is, then end."),
    click.option(
        "--every",
        "every_s",
        type=click.FloatRange(min=0),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="How often a batch begins; fewer batches are larger and cheaper.",
    ),
    _OPTION,
)
_NAMES = tuple(field for field in Job.__dataclass_fields__ if field not in ("topics", "pattern"))


def _job(given: dict[str, Any], *, topics_needed: bool) -> Job:
    """Take the shared options out of what was given."""
    topics, pattern = given.pop("topics"), given.pop("topic_pattern")
    job = Job(
        topics=tuple(name.strip() for name in (topics or "").split(",") if name.strip()),
        pattern=pattern,
        **{name: given.pop(name) for name in _NAMES if name in given},
    )
    if bool(job.topics) == (pattern is not None) and (topics_needed or job.topics):
        raise click.UsageError("say which topics, once: --topics A,B or --topic-pattern RE")
    _check_pattern(pattern)
    pairs(job.conf, "--conf")
    pairs(job.options, "--option")
    return job


def _check_pattern(pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise click.UsageError(
            f"--topic-pattern {pattern!r} is no regular expression: {error}"
        ) from None


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """Read ``NAME=VALUE`` as given to ``option``."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {text!r}: must be NAME=VALUE")
        found[name.strip()] = value
    return found


def _is_of_spark(error: Exception) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))

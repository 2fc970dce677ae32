"""What jobs from topics into a topic share: what they are called, what they refuse, their options.

The name of a job's sink is made of its input and its output, so that it is the same with every
checkpoint: whoever loses a checkpoint and begins anew is told so, instead of finding everything
in the topic twice.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from waystation.pipelines.failures import JobError
from waystation.pipelines.job import Job

__all__ = [
    "checkpoint_of",
    "named",
    "output_options",
    "refuse_loops",
    "refuse_missing",
    "sink_name",
    "with_defaults",
]

F = TypeVar("F", bound=Callable[..., Any])

_LONGEST_PART = 100


def named(topics: str | Sequence[str]) -> tuple[str, ...]:
    """The topics as a user may give them: a list, or a text with commas."""
    names = topics.split(",") if isinstance(topics, str) else topics
    return tuple(name.strip() for name in names if name.strip())


def refuse_loops(topics: Sequence[str], pattern: str | None, *outputs: str) -> None:
    """A job that reads what it writes would never end."""
    for output in outputs:
        if output in topics or (pattern is not None and re.fullmatch(pattern, output)):
            raise JobError(
                f"the job would read the topic {output}, to which it writes, and never end. "
                "Remedy: write to another topic"
            )


def refuse_missing(bootstrap: str, *topics: str) -> None:
    """Raise if one is not there: a topic that only few rows go to might not be missed for weeks."""
    from waystation.pipelines.topic_log import ask

    there = {one.name for one in ask(bootstrap, lambda admin: admin.list_topics())}
    for topic in topics:
        if topic not in there:
            raise JobError(
                f"topic {topic} does not exist: create it with `waystation topic create {topic}`"
            )


def with_defaults(options: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """The options, and those of ``defaults`` that are not among them, however they are spelled."""
    said = {name.lower() for name in options}
    return {**{n: one for n, one in defaults.items() if n.lower() not in said}, **options}


def sink_name(job: str, topics: Sequence[str], pattern: str | None, to: str | None) -> str:
    """What the sink calls this job, unless the user calls it something."""
    read = repr((sorted(topics), pattern)).encode()
    into = re.sub(r"[^A-Za-z0-9._-]", "-", to or "topics")[:_LONGEST_PART]
    return f"{job}-{into}-{hashlib.sha256(read).hexdigest()[:8]}"


# --- the command line -----------------------------------------------------------------------


def output_options(command: F) -> F:
    """The options about a topic that is written to."""
    for option in reversed(_OUTPUT):
        command = option(command)
    return command


_OUTPUT = (
    click.option(
        "--sink-id",
        metavar="NAME",
        help="What brokers call this job's output.  [default: made of the topics' names]",
    ),
    click.option(
        "--sink-option",
        "sink_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the sink, e.g. compression=zstd; again.",
    ),
)


def checkpoint_of(job: Job) -> str:
    """Where the job keeps its progress, which nobody but the user can choose."""
    if job.checkpoint is None:
        raise click.UsageError(
            "say where to keep the progress: --checkpoint DIR, a folder that stays"
        )
    return job.checkpoint

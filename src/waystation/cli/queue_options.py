"""Options that the commands around queues share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["PATIENCE_MS", "group_option", "milliseconds"]

PATIENCE_MS = 3_000

F = TypeVar("F", bound=Callable[..., Any])


def group_option(command: F) -> F:
    """``--group``: which queue over the topic."""
    return click.option(
        "--group", metavar="NAME", help="The share group.  [default: named as the queue]"
    )(command)


def milliseconds(text: str, option: str) -> int:
    """A duration as it was given to ``option``: ``500ms``, ``30s``, ``PT1H``, or milliseconds."""
    from waystation.scheduling.times import duration_of

    try:
        return duration_of(text.strip())
    except ValueError as problem:
        raise click.UsageError(f"{option} {problem}") from None

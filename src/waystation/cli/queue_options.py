"""Options that the commands around queues share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["PATIENCE_MS", "group_option"]

PATIENCE_MS = 3_000

F = TypeVar("F", bound=Callable[..., Any])


def group_option(command: F) -> F:
    """``--group``: which queue over the topic."""
    return click.option(
        "--group", metavar="NAME", help="The share group.  [default: named as the queue]"
    )(command)

"""What became of a question about many partitions, each of which has its own outcome."""

from typing import TYPE_CHECKING

import click

from waystation.cli.output import say

if TYPE_CHECKING:
    from waystation.client.cluster_descriptions import Outcomes

__all__ = ["complain", "leave", "refusals"]


def refusals(outcomes: "Outcomes") -> dict[str, str]:
    """Each partition that was refused, and why."""
    return {
        str(where): str(error).removeprefix(f"partition {where}: ")
        for where, error in outcomes.items()
        if error is not None
    }


def complain(refused: dict[str, str]) -> None:
    """Tell the person."""
    for where, reason in refused.items():
        say(f"waystation: {reason if where in reason else f'{where}: {reason}'}")


def leave(code: int) -> None:
    """End the command with that exit code."""
    if code:
        raise click.exceptions.Exit(code)

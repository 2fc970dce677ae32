"""Asking the cluster on behalf of a command, and asking the person first."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from waystation.client.admin import Admin

__all__ = ["confirm", "with_admin"]

T = TypeVar("T")

_PATIENCE_MS = 3_000


def with_admin(bootstrap: str, work: Callable[["Admin"], Awaitable[T]]) -> T:
    """Run ``work`` with an admin on a loop of its own."""
    from waystation.client.admin import Admin
    from waystation.runtime.loops import run

    async def working() -> T:
        async with Admin(bootstrap, metadata_timeout_ms=_PATIENCE_MS) as admin:
            return await work(admin)

    return run(working())


def confirm(question: str, yes: bool) -> None:
    """Ask whoever sits at a terminal; a script knows what it does."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True)

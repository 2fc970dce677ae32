"""Asking the cluster on behalf of a command, and asking the person first."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from waystation.client.admin import Admin

__all__ = ["confirm", "patiently", "with_admin"]

T = TypeVar("T")

_PATIENCE_MS = 3_000
# Longer than the lease of a broker that has just died.
_UNTIL_OTHERS_LEAD_S = 20.0
_PAUSE_S = 0.25


def with_admin(bootstrap: str, work: Callable[["Admin"], Awaitable[T]]) -> T:
    """Run ``work`` with an admin on a loop of its own."""
    from waystation.client.admin import Admin
    from waystation.runtime.loops import run

    async def working() -> T:
        async with Admin(bootstrap, metadata_timeout_ms=_PATIENCE_MS) as admin:
            return await work(admin)

    return run(working())


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again while a broker that should know cannot be reached: another takes its place.

    Only for questions.  That no broker at all can be reached was said before.
    """
    import asyncio
    import time

    from waystation.model.errors import ErrorCode, WaystationError

    passing = (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )
    ends_at = time.monotonic() + _UNTIL_OTHERS_LEAD_S
    while True:
        try:
            return await ask()
        except WaystationError as error:
            if error.code not in passing or time.monotonic() > ends_at:
                raise
            await asyncio.sleep(_PAUSE_S)


def confirm(question: str, yes: bool) -> None:
    """Ask whoever sits at a terminal; a script knows what it does."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True)

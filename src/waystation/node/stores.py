"""A shared store, opened for one piece of work."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from waystation.coordination.address import parse_address
from waystation.coordination.connect import store_at
from waystation.coordination.store import CoordinationStore
from waystation.runtime.clock import SystemClock
from waystation.runtime.loops import run

T = TypeVar("T")


def with_store(address: str, work: Callable[[CoordinationStore], Awaitable[T]]) -> T:
    """Run ``work`` with the store at ``address``, which is not SQLite."""
    found = parse_address(address)
    assert found.kind != "sqlite", "a file of one node is shared by nobody"

    async def working() -> T:
        store = store_at(found, Path(), SystemClock())
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return run(working())

"""What the single node's store costs: opening, one write, a full transaction, listing.

Run: python benchmarks/coordination/sqlite.py
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from waystation.coordination.sqlite import SqliteStore
from waystation.coordination.store import OPERATIONS_MAX

ROUNDS = 100


async def median_ms(work: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    """The median of several rounds."""
    took = []
    for _ in range(rounds):
        began = perf_counter()
        await work()
        took.append(perf_counter() - began)
    return median(took) * 1e3


async def main(path: Path) -> None:
    async def reopen() -> None:
        async with SqliteStore(path):
            pass

    print(f"open and close        {await median_ms(reopen, 10):7.2f} ms")
    full = {f"partitions/x/{n}": bytes(100) for n in range(OPERATIONS_MAX)}
    async with SqliteStore(path) as store:
        one_ms = await median_ms(lambda: store.txn({}, {"a": b"1"}))
        full_ms = await median_ms(lambda: store.txn({}, full))
        print(f"one put               {one_ms:7.2f} ms")
        print(f"{OPERATIONS_MAX} puts at once      {full_ms:7.2f} ms")
        for n in range(100):
            await store.txn({}, {f"many/{n}-{key[13:]}": value for key, value in full.items()})
        print(f"list 10,101 items     {await median_ms(lambda: store.get(''), 10):7.2f} ms")


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "coordination.db"))

"""A process that holds a lease until it has ended: ``python -m ... ADDRESS KEY TTL_MS``."""

import asyncio
import contextlib
import sys
from pathlib import Path

from waystation.coordination.address import parse_address
from waystation.coordination.connect import store_at
from waystation.model.errors import LeaseExpiredError, StoreUnavailableError
from waystation.runtime.clock import SystemClock


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(address: str, key: str, ttl_ms: int) -> None:
    store = store_at(parse_address(address), Path("unused"), SystemClock())
    await store.open()
    lease = await store.lease(ttl_ms)
    await store.txn({}, {key: b"held"}, leases={key: lease.id})
    say("held")
    try:
        while True:
            await asyncio.sleep(ttl_ms / 5_000)
            with contextlib.suppress(StoreUnavailableError):  # then nobody knows: ask again
                await lease.keep_alive()
    except LeaseExpiredError:
        say("ended")
    await store.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))

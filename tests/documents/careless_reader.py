"""Polls once in a group, prints what it holds, and never gets done with it."""

import asyncio
import sys

from waystation import Consumer


async def main(bootstrap: str, topic: str, delivery: str) -> None:
    async with Consumer(
        topic,
        topic,
        bootstrap=bootstrap,
        delivery=delivery,
        session_timeout_ms=300,
        heartbeat_interval_ms=50,
        auto_commit_interval_ms=0,
    ) as consumer:
        messages = []
        while not messages:
            messages = await consumer.poll(max_messages=10)
        print(*(message.value.decode() for message in messages if message.value), flush=True)  # noqa: T201
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

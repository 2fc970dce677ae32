"""A consumer group: subscribe, poll, process, commit; and a second group that reads it all again.

Run a broker with ``waystation serve``, then this.  Start it twice at the same time, with
GROUP=billing, and the two share the partitions.
"""

import asyncio
import os
from contextlib import suppress

from waystation import Admin, Consumer, Message, Producer
from waystation.model.errors import TopicExistsError

BOOTSTRAP = os.environ.get("WAYSTATION_BOOTSTRAP", "localhost:9092")
GROUP = os.environ.get("GROUP", "billing")
TOPIC = "example-group"
ORDERS = 10


async def charge(message: Message) -> None:
    """What the application does with a message; twice must do no harm."""
    print(f"{GROUP} charges {message.key!r} for {message.value!r}")


async def at_least_once() -> None:
    """Poll, process, commit after processing: nothing is lost, a crash may repeat some."""
    async with Consumer(GROUP, bootstrap=BOOTSTRAP) as consumer:
        await consumer.subscribe([TOPIC], on_assigned=lambda got: print(f"{GROUP} reads {got}"))
        done = 0
        while done < ORDERS:
            messages = await consumer.poll(timeout_ms=1000)
            for message in messages:
                await charge(message)
            await consumer.commit()
            done += len(messages)


async def at_most_once() -> None:
    """Commit first: nothing comes twice, a crash may lose what was in hand."""
    async with Consumer(
        "dashboard", TOPIC, bootstrap=BOOTSTRAP, delivery="at-most-once"
    ) as consumer:
        done = 0
        async for message in consumer:
            done += 1
            print(f"dashboard counts {message.value!r}, {done} so far")
            if done == ORDERS:
                break


async def main() -> None:
    """Ten orders, two groups; each group gets every order."""
    async with Admin(BOOTSTRAP) as admin:
        with suppress(TopicExistsError):
            await admin.create_topic(TOPIC, partitions=3)
    async with Producer(BOOTSTRAP) as producer:
        for number in range(ORDERS):
            await producer.send(TOPIC, f"order {number}", key=f"customer-{number % 3}")

    await asyncio.gather(at_least_once(), at_most_once())

    async with Admin(BOOTSTRAP) as admin:
        for where, lag in (await admin.group_lag(GROUP)).items():
            print(f"{GROUP} has read {where} up to {lag.committed}, {lag.messages} messages wait")


if __name__ == "__main__":
    asyncio.run(main())

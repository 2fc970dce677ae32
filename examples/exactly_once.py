"""Exactly once: orders become invoices, one each, though the billing crashes in the middle.

Run a broker with ``waystation serve``, then this.
"""

import asyncio
import os
from contextlib import suppress

from waystation import Admin, Consumer, Producer
from waystation.model.errors import TopicExistsError

BOOTSTRAP = os.environ.get("WAYSTATION_BOOTSTRAP", "localhost:9092")
ORDERS, INVOICES = "example-orders", "example-invoices"
COUNT = 10


class PowerCut(Exception):  # noqa: N818  (not an error of the program)
    """What nobody plans for."""


async def main() -> None:
    """Place ten orders, bill them with a crash on the way, and read the invoices."""
    async with Admin(BOOTSTRAP) as admin:
        for topic in (ORDERS, INVOICES):
            with suppress(TopicExistsError):
                await admin.create_topic(topic, partitions=3)
    async with Producer(BOOTSTRAP) as producer:
        for number in range(COUNT):
            await producer.send(ORDERS, f"order {number}", key=f"customer-{number % 3}")

    with suppress(PowerCut):
        await bill(crash=True)
    await bill(crash=False)

    async with Consumer(
        topics=[INVOICES], bootstrap=BOOTSTRAP, isolation="read_committed"
    ) as consumer:
        for _ in range(COUNT):
            message = await anext(consumer)
            print(f"{message.key!r}: {message.value!r}")


async def bill(*, crash: bool) -> None:
    """One life of the service: what is sent in a block counts once the block has been left."""
    async with (
        Consumer("billing", [ORDERS], bootstrap=BOOTSTRAP, delivery="exactly-once") as consumer,
        Producer(BOOTSTRAP, transactional_id="billing-1") as producer,
    ):
        billed = 0
        while billed < COUNT:
            async with consumer.transaction(producer) as transaction:
                async for message in transaction:
                    order = (message.value or b"").decode()
                    await transaction.send(INVOICES, f"invoice for {order}", key=message.key)
                    if crash:
                        print(f"the power goes out after the invoice for {order} was sent")
                        raise PowerCut
                    billed += 1


if __name__ == "__main__":
    asyncio.run(main())

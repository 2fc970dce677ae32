"""A queue: several workers, each message to one of them, retries, and dead letters.

Run a broker with ``waystation serve``, then this.  Orders of one customer are served one after the
other, by whichever worker; one order fails at first and comes again, one can never be served.
"""

import asyncio
import os

from waystation import Admin, Queue, QueueMessage

BOOTSTRAP = os.environ.get("WAYSTATION_BOOTSTRAP", "localhost:9092")
NAME = "example-queue"
ORDERS = 10
SLOW, IMPOSSIBLE = b"order 3", b"order 7"


class NotYetError(Exception):
    """It may work later."""


class NeverError(Exception):
    """It will never work."""


def serve(message: QueueMessage) -> None:
    """What the application does; twice must do no harm."""
    if message.value == SLOW and message.deliveries == 1:
        raise NotYetError
    if message.value == IMPOSSIBLE:
        raise NeverError


async def worker(name: str, open_orders: set[bytes | None]) -> None:
    """Receive, serve, and say what became of it."""
    async with Queue(NAME, BOOTSTRAP) as queue:
        while open_orders:
            for message in await queue.receive(max_messages=2, wait_ms=200):
                try:
                    serve(message)
                except NotYetError:
                    print(f"{name}: {message.value!r} has to wait")
                    await queue.nack(message, delay="200ms")
                except NeverError:
                    print(f"{name}: {message.value!r} is impossible")
                    await queue.nack(message, requeue=False)
                    open_orders.discard(message.value)
                else:
                    print(f"{name}: {message.value!r} of {message.key!r}, try {message.deliveries}")
                    await queue.ack(message)
                    open_orders.discard(message.value)


async def main() -> None:
    """Ten orders of three customers, two workers."""
    async with Admin(BOOTSTRAP) as admin:
        dead = f"{NAME}.dead"
        await admin.create_queue(NAME, order_by_key=True, max_deliveries=5, dead_letter_topic=dead)
    async with Queue(NAME, BOOTSTRAP) as queue:
        for number in range(ORDERS):
            await queue.send(f"order {number}", key=f"customer-{number % 3}")

    open_orders: set[bytes | None] = {b"order %d" % number for number in range(ORDERS)}
    await asyncio.gather(worker("worker 1", open_orders), worker("worker 2", open_orders))

    async with Admin(BOOTSTRAP) as admin:
        found = await admin.describe_queue(NAME)
        print(f"{found.unsettled} orders wait; {found.dead_letter_topic} keeps what went wrong")


if __name__ == "__main__":
    asyncio.run(main())

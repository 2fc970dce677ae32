"""Waystation's own client: create a topic, produce, consume.

Run a broker with ``waystation serve``, then this.
"""

import asyncio
import os

from waystation import Admin, Consumer, Producer
from waystation.model.errors import TopicExistsError

BOOTSTRAP = os.environ.get("WAYSTATION_BOOTSTRAP", "localhost:9092")
TOPIC = "example-python"


async def main() -> None:
    """Send ten orders and read them back."""
    async with Admin(BOOTSTRAP) as admin:
        try:
            await admin.create_topic(TOPIC, partitions=3)
        except TopicExistsError:
            print(f"{TOPIC} is there already")

    async with Producer(BOOTSTRAP, compression="lz4") as producer:
        for number in range(10):
            sent = await producer.send(TOPIC, f"order {number}", key=f"customer-{number % 3}")
            print(f"sent to partition {sent.partition} at offset {sent.offset}")

    async with Consumer(topics=[TOPIC], bootstrap=BOOTSTRAP, start="earliest") as consumer:
        read = 0
        async for message in consumer:
            read += 1
            print(f"{message.key!r}: {message.value!r} ({message.size} bytes)")
            if read == 10:
                break


if __name__ == "__main__":
    asyncio.run(main())

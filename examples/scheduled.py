"""Messages for later: send, list, cancel, re-time, and read each once its time has come.

Run a broker with ``waystation serve``, then this.
"""

import asyncio
import os
import time

from waystation import Admin, Consumer, Producer
from waystation.model.errors import TopicExistsError

BOOTSTRAP = os.environ.get("WAYSTATION_BOOTSTRAP", "localhost:9092")
TOPIC = "example-reminders"


async def main() -> None:
    """Ten reminders: one is called back, one is put off, the rest come when they are due."""
    async with Admin(BOOTSTRAP) as admin, Producer(BOOTSTRAP) as producer:
        try:
            await admin.create_topic(TOPIC, partitions=3, configs={"schedule.enable": "true"})
        except TopicExistsError:
            print(f"{TOPIC} is there already")

        due = int(time.time() * 1_000) + 1_000
        sent = [
            await producer.send(TOPIC, f"order {number}", key=f"cart-{number}", deliver_at=due)
            for number in range(10)
        ]

        schedules = admin.schedules(TOPIC)
        async for one in schedules.pending():
            print(f"{one.id} waits: {one.key!r}, {one.value_bytes} bytes, due {one.due}")
        await schedules.cancel(sent[3])
        await schedules.retime(sent[7], due + 500)
        print("order 3 will not come, order 7 will come last")

    async with Consumer(topics=[TOPIC], bootstrap=BOOTSTRAP, start="earliest") as consumer:
        left = 9
        async for message in consumer:
            late_ms = message.timestamp - due
            print(f"{message.value!r} came {late_ms} ms after what was due first")
            left -= message.timestamp >= due
            if not left:
                break


if __name__ == "__main__":
    asyncio.run(main())

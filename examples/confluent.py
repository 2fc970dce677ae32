"""confluent-kafka, unchanged, against Waystation (pip install confluent-kafka)."""

import os

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ.get("WAYSTATION_BOOTSTRAP", "localhost:9092")
TOPIC = "example-confluent"


def main() -> None:
    """Send ten orders and read them back."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    for name, creation in admin.create_topics([NewTopic(TOPIC, num_partitions=1)]).items():
        trouble = creation.exception()
        print(f"{name}: {trouble or 'created'}")

    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for number in range(10):
        producer.produce(TOPIC, f"order {number}".encode(), key=f"customer-{number % 3}".encode())
    producer.flush()

    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example-confluent",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    read = 0
    while read < 10:
        message = consumer.poll(20.0)
        if message is None:
            raise SystemExit("no message came within 20 seconds")
        if message.error():
            raise SystemExit(str(message.error()))
        read += 1
        print(f"{message.key()!r}: {message.value()!r} at offset {message.offset()}")
    consumer.close()


if __name__ == "__main__":
    main()

"""One side of a steady load, in a process of its own: sends on time, or notes what arrives when.

Each value begins with the moment at which it was due, so that a stall anywhere makes everything
late that it delayed.  The clock is the machine's monotonic one, which processes share.  Prints the
latencies in milliseconds as one JSON list.
"""

import json
import struct
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

VALUE_BYTES = 1_000
_DUE = struct.Struct(">d")
_PATIENCE_S = 30.0


def send(bootstrap: str, topic: str, rate: float, total: int) -> list[float]:
    """Publish ``total`` messages at ``rate`` per second; from due to acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1})
    producer.list_topics(topic, _PATIENCE_S)
    latencies: list[float] = []
    padding = bytes(VALUE_BYTES - _DUE.size)
    began, number = time.monotonic(), 0

    def told(due: float, error: object) -> None:
        assert error is None, error
        latencies.append(1e3 * (time.monotonic() - due))

    while number < total:
        for _ in range(number, min(total, int((time.monotonic() - began) * rate) + 1)):
            due = began + number / rate
            producer.produce(
                topic,
                _DUE.pack(due) + padding,
                on_delivery=lambda error, _, due=due: told(due, error),
            )
            number += 1
        producer.poll(0.0005)
    assert producer.flush(_PATIENCE_S) == 0
    return latencies


def receive(bootstrap: str, topic: str, partitions: int, total: int) -> list[float]:
    """Read ``total`` messages as they come; from due to received."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused: partitions are assigned, nothing is committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    latencies: list[float] = []
    while len(latencies) < total:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None, f"only {len(latencies)} of {total} came"
        assert message.error() is None, message.error()
        latencies.append(1e3 * (time.monotonic() - _DUE.unpack_from(message.value())[0]))
    consumer.close()
    return latencies


def main(side: str, bootstrap: str, topic: str, number: str, total: str) -> None:
    run = send if side == "send" else receive
    json.dump(run(bootstrap, topic, int(number), int(total)), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])

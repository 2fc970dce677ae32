"""A librdkafka producer in a process of its own that sends at a steady pace, whatever happens.

Latency is counted from the moment a message was due, not from when it was handed over: a
producer that stalls makes all that it delayed late.  Prints one JSON document at the end.
"""

import argparse
import json
import sys
import time
from typing import Any

from confluent_kafka import Producer

PADDING = "." * 200

_FLUSH_WITHIN_S = 120.0


class Pacer:
    """Sends ``name:number:padding`` and remembers what became of it."""

    def __init__(self, bootstrap: str, topic: str, name: str, rate: float, sample: int) -> None:
        self.failed: list[int] = []
        self.delivered = 0
        self.latencies: list[tuple[float, float]] = []
        self._topic, self._name = topic, name
        self._rate, self._sample = rate, sample
        self._began = 0.0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def run(self, seconds: float) -> dict[str, Any]:
        """Send for so long, wait for the outcome of all of it, and tell."""
        self._producer.list_topics(self._topic, 30)
        self._began = time.monotonic()
        number, total = 0, int(seconds * self._rate)
        while number < total:
            due = min(int((time.monotonic() - self._began) * self._rate) + 1, total)
            number = self._send(number, due)
            self._producer.poll(0.001)
        ended = time.monotonic()
        left = self._producer.flush(_FLUSH_WITHIN_S)
        return {
            "name": self._name,
            "sent": total,
            "delivered": self.delivered,
            "failed": self.failed,
            "unknown": left,
            "began": self._began,
            "ended": ended,
            "latencies": self.latencies,
        }

    def _send(self, number: int, due: int) -> int:
        while number < due:
            try:
                self._producer.produce(
                    self._topic, f"{self._name}:{number}:{PADDING}", on_delivery=self._told(number)
                )
            except BufferError:
                return number
            number += 1
        return number

    def _told(self, number: int) -> Any:
        due_at = self._began + number / self._rate

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                self.failed.append(number)
                return
            self.delivered += 1
            if number % self._sample == 0:
                self.latencies.append((due_at, time.monotonic() - due_at))

        return delivered


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "name"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--sample", type=int, default=1)
    given = parser.parse_args(arguments)
    pacer = Pacer(given.bootstrap, given.topic, given.name, given.rate, given.sample)
    json.dump(pacer.run(given.seconds), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])

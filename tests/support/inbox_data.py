"""An inbox with very many users, made once and kept: who was sent what follows from numbers.

Message *n* goes to user ``n % users``, so that everybody has as many, far apart in the log.  They
are written by a Kafka client, as the inbox's page says that one may: a POST for each would take an
hour.  What the gateway has of its own, the topic, it makes itself.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.support.http_client import HttpClient
from waystation.testing.process import BrokerProcess

TOPIC, PARTITIONS = "inbox", 16
_KEPT = Path(__file__).parents[2] / ".cache" / "inbox"
_FORMAT = 2
_TURN = 5_000
_TOGETHER = 100  # about what the gateway puts together of what is sent at once


def user_of(number: int) -> str:
    """A user's name."""
    return f"user-{number:08d}"


class InboxData:
    """``users`` with ``each`` messages each."""

    def __init__(self, users: int, each: int) -> None:
        self.users, self.each = users, each

    def messages_of(self, number: int) -> list[tuple[str, str]]:
        """Sender and text of all that a user was sent, in order."""
        return [self._message(number + turn * self.users) for turn in range(self.each)]

    def made(self, directory: Path | None = None) -> BrokerProcess:
        """A broker that has them, running; what was made once is used again."""
        folder = (directory or _KEPT) / f"{self.users}-{self.each}"
        note, wanted = folder / "made.json", {"format": _FORMAT}
        if not note.exists() or json.loads(note.read_text()) != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            broker = _broker(folder)
            try:
                self._make(broker)
            except BaseException:
                broker.kill()
                raise
            note.write_text(json.dumps(wanted))
            return broker
        return _broker(folder)

    def _message(self, number: int) -> tuple[str, str]:
        return user_of((number * 7 + 3) % self.users), f"message {number} of many"

    def _make(self, broker: BrokerProcess) -> None:
        with HttpClient(broker.http) as http:
            first = {"from_user": "nobody", "to_user": "nobody", "message": "the topic is made"}
            assert http.post("/send", first).status == 200
        failed: list[object] = []

        def told(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "partitioner": "murmur2",
                "acks": "all",
                "enable.idempotence": True,
                "queue.buffering.max.messages": 500_000,
                "linger.ms": 50,
                "batch.num.messages": _TOGETHER,
                "on_delivery": told,
                "delivery.report.only.error": True,
            }
        )
        for number in range(self.users * self.each):
            sender, text = self._message(number)
            _produce(producer, user_of(number % self.users), text, sender)
            if number % _TURN == 0:
                producer.poll(0)
        assert producer.flush(300) == 0, "not everything was delivered in time"
        assert not failed, failed[0]


def _broker(folder: Path) -> BrokerProcess:
    return BrokerProcess(folder / "data", http="127.0.0.1:0").start()


def _produce(producer: Any, user: str, text: str, sender: str) -> None:
    while True:
        try:
            producer.produce(TOPIC, text, user, headers=[("from_user", sender)])
            return
        except BufferError:
            producer.poll(0.1)

"""The same questions to two brokers, and answers that can be compared.

An interview asks one broker and notes what it said, under the question's name.  What brokers
choose freely is written as what it stands for: ids of members, producers and topics, addresses,
epochs of groups, of which only the order counts, and the wording of an error, of which only counts
that there is one.
"""

import socket
from collections.abc import Iterator
from typing import Any, Self
from uuid import UUID

from tests.apis.kit import Wire
from waystation.messages.create_topics import CreatableTopic, CreateTopicsRequest
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.model.ids import NO_TOPIC_ID
from waystation.wire.message import Message, Struct
from waystation.wire.versions import ApiKey

Noted = Any
"""An answer as plain lists and dictionaries."""

_UNORDERED = {
    "topics",
    "partitions",
    "members",
    "topic_partitions",
    "groups",
    "results",
    "topic_results",
    "results_by_partition",
    "results_by_topic_v3_and_below",
    "results_by_transaction",
    "transaction_states",
}
_EPOCHS = {"member_epoch", "group_epoch", "assignment_epoch"}
_MEMBERS = {"member_id", "leader"}


class Interview:
    """Asks one broker; use it as a context."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._lines: dict[str, Wire] = {}
        self._own_names = {""}
        self._members: dict[str, str] = {}
        self._topics: dict[UUID, str] = {NO_TOPIC_ID: "none"}
        self._producers: dict[int, str] = {}
        self.answers: dict[str, Noted] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines.values():
            line.close()

    def line(self, name: str = "ann") -> Wire:
        """The connection of that name, made when it is first needed."""
        if name not in self._lines:
            self._lines[name] = Wire(*self._address)
        return self._lines[name]

    def ask(self, question: str, request: Message, version: int, line: str = "ann") -> Any:
        """Ask, note the answer, and give it as it came."""
        answer = self.line(line).ask(request, version)
        self.note(question, answer, version)
        return answer

    def hear(self, question: str, api: ApiKey, version: int, line: str) -> Any:
        """The answer to what was sent before."""
        answer = self.line(line).receive(api, version)
        self.note(question, answer, version)
        return answer

    def note(self, question: str, answer: Message, version: int) -> None:
        """Keep an answer."""
        assert question not in self.answers, f"{question!r} is asked twice"
        plain = self._plain(answer, version)
        epochs = sorted(set(_epochs_in(plain)))
        self.answers[question] = _ranked(plain, {epoch: n for n, epoch in enumerate(epochs, 1)})

    def note_plain(self, question: str, told: Noted) -> None:
        """Keep what was made of an answer."""
        assert question not in self.answers, f"{question!r} is asked twice"
        self.answers[question] = told

    def producer(self, producer_id: int) -> str:
        """What a producer id stands for."""
        return self._producers.setdefault(producer_id, f"<producer {len(self._producers) + 1}>")

    def topic_id(self, name: str) -> UUID:
        """The id of a topic, if it was made here; one that no topic has, otherwise."""
        return next((key for key, known in self._topics.items() if known == name), UUID(int=7))

    def chosen(self, member_id: str) -> str:
        """A member id that is ours, and thus the same for both brokers."""
        self._own_names.add(member_id)
        return member_id

    def topic(self, name: str, partitions: int) -> UUID:
        """Make a topic; its id."""
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        (made,) = self.line().ask(CreateTopicsRequest(topics=[wanted]), 7).topics
        assert made.error_code == 0, made
        about = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        while True:
            (told,) = self.line().ask(about, 12).topics
            if told.error_code == 0 and all(not one.error_code for one in told.partitions):
                break
        self._topics[told.topic_id] = name
        return UUID(str(told.topic_id))

    # --- what an answer says -----------------------------------------------------------------

    def _plain(self, value: Any, version: int, name: str = "") -> Noted:
        match value:
            case Struct():
                return self._fields(value, version)
            case list():
                items = [self._plain(one, version) for one in value]
                return sorted(items, key=repr) if name in _UNORDERED else items
            case bytes():
                return value.hex()
            case UUID():
                return f"<{self._topics.get(value, 'unknown')}>"
            case str() if name in _MEMBERS and value not in self._own_names:
                return self._members.setdefault(value, f"<member {len(self._members) + 1}>")
            case str() if name == "host":
                return "<host>" if value else ""
            case int() if name in ("port", "node_id", "transaction_start_time_ms"):
                return min(value, 0)
            case int() if name == "producer_id" and value >= 0:
                return self.producer(value)
            case _:
                return value

    def _fields(self, value: Struct, version: int) -> dict[str, Noted]:
        told = {
            name: self._plain(getattr(value, name), version, name)
            for name, field in value.__fields__.items()
            if field.versions.include(version)
        }
        if "error_message" in told:
            message = told.pop("error_message")
            if told["error_code"]:
                told["has_message"] = bool(message)
        return told


def _epochs_in(plain: Noted) -> Iterator[int]:
    """Every epoch that is one: 0 and less have a meaning of their own."""
    match plain:
        case list():
            for one in plain:
                yield from _epochs_in(one)
        case dict():
            for name, value in plain.items():
                if name in _EPOCHS and value > 0:
                    yield value
                else:
                    yield from _epochs_in(value)


def _ranked(plain: Noted, ranks: dict[int, int]) -> Noted:
    match plain:
        case list():
            return [_ranked(one, ranks) for one in plain]
        case dict():
            return {
                name: ranks.get(value, value) if name in _EPOCHS else _ranked(value, ranks)
                for name, value in plain.items()
            }
    return plain


def address_of(bootstrap: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = bootstrap.rpartition(":")
    return socket.gethostbyname(host), int(port)

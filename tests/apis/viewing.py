"""Views over the wire: made as topics are, read as consumers do."""

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.apis.asking import Asking, fetch_request
from waystation.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from waystation.records.batch import BatchBuilder, Record, records_of
from waystation.records.compression import Codec
from waystation.records.control import read_marker
from waystation.records.header import BatchHeader, batches

COMMITTED = 1


def view_request(name: str, on: str | None, where: str | None, **more: str) -> CreateTopicsRequest:
    """A topic with the options that make a view."""
    options = {"view.on": on, "view.where": where, **more}
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        configs=[
            CreatableTopicConfig(name=option, value=value)
            for option, value in options.items()
            if value is not None
        ],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=9_000)


def make_view(client: Asking, name: str, on: str, where: str) -> CreatableTopicResult:
    """Make a view, which must succeed."""
    (outcome,) = client.ask(view_request(name, on, where), 7).topics
    assert outcome.error_code == 0, outcome
    return outcome  # type: ignore[no-any-return]


def refusal(client: Asking, name: str, on: str | None, where: str | None, **more: str) -> Any:
    """Try to make a view, which must fail; what is said."""
    (outcome,) = client.ask(view_request(name, on, where, **more), 7).topics
    assert outcome.error_code, outcome
    return outcome


def keyed(*keys: str, codec: Codec = Codec.NONE, filler: int = 0) -> bytes:
    """A batch of a record for each key, its value a document that says so."""
    builder = BatchBuilder(codec, limit_bytes=64 << 20)
    for number, key in enumerate(keys):
        value = json.dumps({"key": key, "n": number, "filler": "x" * filler}).encode()
        assert builder.append(key.encode(), value, [("kind", key.encode())], timestamp=1_000)
    return builder.build()


class Walk(NamedTuple):
    """What a reader saw on its way to the end."""

    records: list[Record]
    answers: int
    nbytes: int

    @property
    def offsets(self) -> list[int]:
        """Of what it saw."""
        return [record.offset for record in self.records]


def walk(client: Asking, topic: str, *, version: int = 11, start: int = 0, **asked: Any) -> Walk:
    """Read as a consumer does, from ``start`` until the end of what may be read."""
    position, answers, nbytes = start, 0, 0
    records: list[Record] = []
    if version >= 13:
        asked["topic_id"] = client.topic_id(topic)
    partition = asked.get("partition", 0)
    only_stable = asked.get("isolation_level") == COMMITTED
    while True:
        request = fetch_request(topic, position, **asked)
        found = client.ask(request, version).responses[0].partitions[0]
        assert found.error_code == 0, (found, partition)
        end = found.last_stable_offset if only_stable else found.high_watermark
        data = bytes(found.records or b"")
        answers, nbytes = answers + 1, nbytes + len(data)
        for header, record in visible(data, found.aborted_transactions or ()):
            assert header.next_offset > position
            if record is not None and record.offset >= position:
                records.append(record)
            if record is None:
                position = header.next_offset
        if position >= end:
            return Walk(records, answers, nbytes)
        assert data, f"stuck at {position} of {end}"


def visible(data: bytes, told: Any) -> Iterator[tuple[BatchHeader, Record | None]]:
    """The records that a consumer shows, and after each batch ``None``."""
    ahead = sorted((one.first_offset, one.producer_id) for one in told)
    aborted = set()
    for at, header in batches(data):
        while ahead and ahead[0][0] <= header.last_offset:
            aborted.add(ahead.pop(0)[1])
        if header.is_control:
            marker = read_marker(data[at : at + header.size_bytes])
            if marker is not None and not marker.committed:
                aborted.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in aborted:
            for record in records_of(data, at):
                yield header, record
        yield header, None


def random_keys(chance: random.Random, count: int, share: float) -> list[str]:
    """Keys of which a ``share`` are ``yes``."""
    return ["yes" if chance.random() < share else "no" for _ in range(count)]

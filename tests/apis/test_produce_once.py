"""ProduceOnce on the wire: stored once, told where, and refused with a reason."""

from typing import Any
from uuid import UUID

import pytest

from tests.apis.asking import TOPIC, Asking
from tests.apis.kit import ThreadedNode
from waystation.messages.once_keys import OnceKeysRequest, OnceKeysResponse
from waystation.messages.produce_once import ProduceOnceRequest, ProduceOnceResponse
from waystation.model.errors import ErrorCode
from waystation.records.batch import BatchBuilder
from waystation.records.header import ONCE, batches, mark_once, peek
from waystation.records.once import HEADER_NAME, hash_of
from waystation.storage.once_window import OnceWindow

STORED, REPLAYED, CONFLICT = 0, 1, 2
LONG_AGO = 1_500_000_000_000


def batch(*pairs: tuple[str, bytes], timestamp: int = LONG_AGO) -> bytes:
    """Messages by their idempotency keys, in a batch as a client makes it."""
    builder = BatchBuilder(limit_bytes=1 << 22)
    for number, (key, value) in enumerate(pairs):
        headers = (("kind", b"a"), (HEADER_NAME, key.encode()))
        builder.append(b"k", value, headers, timestamp=timestamp + number)
    return builder.build()


def sent(client: Asking, topic: str, records: bytes) -> ProduceOnceResponse:
    request = ProduceOnceRequest(topic=topic, timeout_ms=9_000, records=records)
    told: ProduceOnceResponse = client.ask(request, 0)
    return told


def fates(told: ProduceOnceResponse) -> list[tuple[int, int]]:
    assert not told.error_code, told.error_message
    return [(one.fate, one.offset) for one in told.places]


def test_a_message_is_stored_once_and_told_where_it_is(client: Asking, topic: str) -> None:
    client.create(topic)
    first = sent(client, topic, batch(("a", b"1"), ("b", b"2")))
    again = sent(client, topic, batch(("b", b"2"), ("c", b"3"), timestamp=LONG_AGO + 50))

    assert fates(first) == [(STORED, 0), (STORED, 1)]
    assert fates(again) == [(REPLAYED, 1), (STORED, 2)]
    assert again.places[0].timestamp_ms == LONG_AGO + 1
    records = client.read(topic)
    assert [one.value for one in records] == [b"1", b"2", b"3"]
    assert [one.timestamp for one in records] == [LONG_AGO, LONG_AGO + 1, LONG_AGO + 51]
    assert records[0].headers == (("kind", b"a"), (HEADER_NAME, b"a"))


def test_a_key_twice_in_one_batch_is_stored_once(client: Asking, topic: str) -> None:
    client.create(topic)
    told = sent(client, topic, batch(("a", b"1"), ("b", b"2"), ("a", b"1"), ("b", b"other")))

    assert fates(told) == [(STORED, 0), (STORED, 1), (REPLAYED, 0), (CONFLICT, 1)]
    assert [one.value for one in client.read(topic)] == [b"1", b"2"]


def test_other_content_under_a_key_is_not_stored(client: Asking, topic: str) -> None:
    client.create(topic)
    sent(client, topic, batch(("a", b"1")))

    assert fates(sent(client, topic, batch(("a", b"other"), ("b", b"2")))) == [
        (CONFLICT, 0),
        (STORED, 1),
    ]
    assert [one.value for one in client.read(topic)] == [b"1", b"2"]


def test_only_the_leader_marks_batches_and_only_such(client: Asking, topic: str) -> None:
    client.create(topic)
    sent(client, topic, batch(("a", b"1")))
    client.produce(topic, batch(("a", b"1")))

    content = bytes(client.fetch(topic, 0).records or b"")
    assert [bool(header.attributes & ONCE) for _, header in batches(content)] == [True, False]
    forged = bytearray(batch(("z", b"1")))
    mark_once(forged)
    assert client.produce(topic, bytes(forged)).error_code == ErrorCode.INVALID_RECORD
    assert fates(sent(client, topic, batch(("z", b"2")))) == [(STORED, 2)]


def test_the_time_of_a_batch_is_the_leaders_and_that_of_a_message_its_own(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    client.create(topic)
    sent(client, topic, batch(("a", b"1")))

    header = peek(bytes(client.fetch(topic, 0).records or b""))
    assert header.base_timestamp > LONG_AGO + 3_600_000
    assert header.max_timestamp == LONG_AGO


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_topics_that_compress_and_stamp_know_keys_too(
    client: Asking, topic: str, codec: str
) -> None:
    client.create(topic, compression_type=codec, message_timestamp_type="LogAppendTime")
    first = sent(client, topic, batch(("a", b"1" * 500)))
    again = sent(client, topic, batch(("a", b"1" * 500)))

    assert fates(first) == [(STORED, 0)]
    assert fates(again) == [(REPLAYED, 0)]
    assert first.places[0].timestamp_ms == again.places[0].timestamp_ms > LONG_AGO
    assert client.read(topic)[0].timestamp == again.places[0].timestamp_ms


def without_header() -> bytes:
    builder = BatchBuilder()
    builder.append(None, b"x", timestamp=LONG_AGO)
    return builder.build()


def in_transaction() -> bytes:
    builder = BatchBuilder(is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)  # type: ignore[arg-type]
    builder.append(None, b"x", ((HEADER_NAME, b"a"),), timestamp=LONG_AGO)
    return builder.build()


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b"x" * 100, ErrorCode.INVALID_RECORD),
        (batch(("a", b"1"))[:-1], ErrorCode.INVALID_RECORD),
        (without_header(), ErrorCode.INVALID_RECORD),
        (batch(("", b"1")), ErrorCode.INVALID_RECORD),
        (batch(("a b", b"1")), ErrorCode.INVALID_RECORD),
        (batch(("ä", b"1")), ErrorCode.INVALID_RECORD),
        (batch(("a" * 256, b"1")), ErrorCode.INVALID_RECORD),
        (batch(*((str(one), b"1") for one in range(1_001))), ErrorCode.INVALID_REQUEST),
        (in_transaction(), ErrorCode.INVALID_REQUEST),
        (batch(("a", b"1" * (1 << 20 | 1 << 10))), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_cannot_be_stored_is_refused(
    client: Asking, topic: str, records: bytes, code: ErrorCode
) -> None:
    client.create(topic)

    assert sent(client, topic, records).error_code == code
    assert client.start_and_end(topic) == (0, 0)
    assert fates(sent(client, topic, batch(("a", b"1")))) == [(STORED, 0)]


def test_a_refused_batch_leaves_no_key_behind(client: Asking, topic: str) -> None:
    client.create(topic, max_message_bytes="500")
    assert sent(client, topic, batch(("a", b"1" * 600))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    client.configure(TOPIC, topic, max_message_bytes="5000")

    assert fates(sent(client, topic, batch(("a", b"1" * 600)))) == [(STORED, 0)]


def test_who_does_not_lead_or_is_none_says_so(client: Asking, topic: str) -> None:
    told = sent(client, "nobody-made-this", batch(("a", b"1")))

    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def asked_for_keys(client: Asking, topic: str, **others: Any) -> OnceKeysResponse:
    asked = {"topic_id": client.topic_id(topic), "leader_epoch": -1, "end": -1, "page": 0}
    told: OnceKeysResponse = client.ask(OnceKeysRequest(**(asked | others)), 0)
    return told


def test_a_replica_is_told_the_keys_of_committed_messages(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    client.create(topic)
    sent(client, topic, batch(("a", b"1"), ("b", b"2")))

    learnt, page, end = OnceWindow(), 0, -1
    while page >= 0:
        told = asked_for_keys(client, topic, page=page, end=end)
        assert not told.error_code, told.error_message
        learnt.load(told.keys)
        page, end = told.next_page, told.end
    assert end == 2
    found = [learnt.find(hash_of(key)) for key in (b"a", b"b")]
    assert [one and (one.offset, one.timestamp) for one in found] == [
        (0, LONG_AGO),
        (1, LONG_AGO + 1),
    ]
    assert asked_for_keys(client, topic, end=1).end == 1


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"page": 4_096}, ErrorCode.INVALID_REQUEST),
        ({"page": -1}, ErrorCode.INVALID_REQUEST),
        ({"leader_epoch": 99}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"topic_id": UUID(int=5)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_who_asks_wrongly_for_keys_is_told(
    client: Asking, topic: str, wrong: dict[str, Any], code: ErrorCode
) -> None:
    client.create(topic)

    assert asked_for_keys(client, topic, **wrong).error_code == code

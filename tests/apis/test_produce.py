"""Produce: what is appended, what is answered, and what is refused with which code."""

from uuid import uuid4

import pytest

from tests.apis.asking import Asking, produce_request, records_in
from tests.apis.forging import damaged, forged
from tests.apis.kit import HungUpError, batch_of, versions
from waystation.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import NO_TOPIC_ID
from waystation.records.compression import Codec
from waystation.runtime.clock import SystemClock
from waystation.wire.versions import ApiKey

TEXT = b"all the same " * 50


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_records_come_back_from_every_version(
    client: Asking, topic: str, version: int, acks: int
) -> None:
    client.create(topic)
    first = client.produce(topic, batch_of(b"a", b"b"), version=version, acks=acks)
    second = client.produce(topic, batch_of(b"c", None), version=version, acks=acks)

    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert second.log_append_time_ms == -1
    assert second.log_start_offset == (0 if version >= 5 else -1)
    client.await_end(topic, 4)
    assert [record.value for record in client.read(topic)] == [b"a", b"b", b"c", None]


def test_a_request_for_several_partitions_is_answered_for_each(client: Asking, topic: str) -> None:
    client.create(topic, partitions=2)
    data = [
        PartitionProduceData(index=index, records=memoryview(batch_of(b"x"))) for index in (0, 1, 7)
    ]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=9_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=data),
            TopicProduceData(name="absent", partition_data=data[:1]),
        ],
    )
    answered, absent = client.ask(request, 9).responses

    assert [one.error_code for one in answered.partition_responses] == [0, 0, 3]
    assert [one.error_code for one in absent.partition_responses] == [3]


def test_acks_zero_is_not_answered_but_appended(client: Asking, topic: str) -> None:
    client.create(topic)
    client.send(produce_request(topic, batch_of(b"silent"), acks=0), 9)

    client.await_end(topic, 1)


def test_a_failed_produce_with_acks_zero_closes_the_connection(client: Asking, topic: str) -> None:
    client.send(produce_request("absent", batch_of(b"silent"), acks=0), 9)

    assert client.is_hung_up()


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(client: Asking, topic: str, acks: int) -> None:
    client.create(topic)
    told = client.produce(topic, batch_of(b"x"), acks=acks)

    assert told.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert client.start_and_end(topic) == (0, 0)


def test_a_partition_that_is_not_there_is_unknown(client: Asking, topic: str) -> None:
    client.create(topic)
    topic_id = client.topic_id(topic)
    batch = batch_of(b"x")

    assert client.produce("absent", batch).error_code == 3
    assert client.produce(topic, batch, partition=1).error_code == 3
    assert client.produce(topic, batch, partition=-1).error_code == 3
    assert client.produce("", batch, version=13, topic_id=topic_id, partition=1).error_code == 3
    unknown = client.produce("", batch, version=13, topic_id=uuid4())
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    nothing = client.produce("", batch, version=13, topic_id=NO_TOPIC_ID)
    assert nothing.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_made_anew_is_another_topic(client: Asking, topic: str) -> None:
    client.create(topic)
    old = client.topic_id(topic)
    client.delete(topic)
    client.create(topic)

    told = client.produce("", batch_of(b"late"), version=13, topic_id=old)
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert client.topic_id(topic) != old
    assert client.produce(topic, batch_of(b"new"), version=13).base_offset == 0


BATCH = batch_of(b"one", b"two")

REFUSED: dict[str, tuple[bytes | None, ErrorCode]] = {
    "no records at all": (None, ErrorCode.INVALID_RECORD),
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "a few bytes": (b"abc", ErrorCode.INVALID_RECORD),
    "half a batch": (BATCH[:-1], ErrorCode.CORRUPT_MESSAGE),
    "two batches": (BATCH + BATCH, ErrorCode.INVALID_RECORD),
    "a wrong checksum": (damaged(BATCH), ErrorCode.CORRUPT_MESSAGE),
    "an old message format": (forged(BATCH, magic=1), ErrorCode.INVALID_RECORD),
    "a control batch": (forged(BATCH, attributes=0x20), ErrorCode.INVALID_RECORD),
    "a delete horizon": (forged(BATCH, attributes=0x40), ErrorCode.INVALID_RECORD),
    "a codec nobody has": (forged(BATCH, attributes=5), ErrorCode.INVALID_RECORD),
    "the broker's timestamps": (forged(BATCH, attributes=8), ErrorCode.INVALID_TIMESTAMP),
    "a transaction without a name": (
        batch_of(b"x", producer=(1, 0, 0), transactional=True),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "offsets of its own": (forged(BATCH, base_offset=5), ErrorCode.INVALID_RECORD),
    "an offset too many": (forged(BATCH, last_offset_delta=2), ErrorCode.INVALID_RECORD),
    "fewer records than it says": (
        forged(BATCH, last_offset_delta=2, records_count=3),
        ErrorCode.INVALID_RECORD,
    ),
    "more records than it says": (
        forged(BATCH, last_offset_delta=0, records_count=1),
        ErrorCode.INVALID_RECORD,
    ),
    "an id without a sequence": (
        forged(BATCH, producer_id=4, producer_epoch=0),
        ErrorCode.INVALID_RECORD,
    ),
    "gzip that is none": (forged(BATCH, attributes=Codec.GZIP), ErrorCode.INVALID_RECORD),
    "lz4 that is none": (forged(BATCH, attributes=Codec.LZ4), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_batch_is_refused_and_leaves_nothing(client: Asking, topic: str, what: str) -> None:
    client.create(topic)
    records, code = REFUSED[what]
    told = client.produce(topic, records)

    assert told.error_code == code, told
    assert told.error_message
    assert told.base_offset == -1
    assert client.start_and_end(topic) == (0, 0)
    assert client.produce(topic, BATCH).base_offset == 0


def test_a_batch_larger_than_the_topic_allows_is_refused(client: Asking, topic: str) -> None:
    client.create(topic, max_message_bytes="200")

    assert client.produce(topic, batch_of(b"x" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce(topic, batch_of(b"x" * 50)).error_code == 0


def test_a_bomb_is_refused(client: Asking, topic: str) -> None:
    client.create(topic)
    bomb = batch_of(*[b"\0" * (1 << 20)] * 63, b"\0" * (900 << 10), codec=Codec.ZSTD)
    two = forged(bomb)

    assert len(two) < 100_000
    assert client.produce(topic, two).error_code in (0, ErrorCode.MESSAGE_TOO_LARGE)


def test_zstd_needs_the_version_that_introduced_it(client: Asking, topic: str) -> None:
    client.create(topic)
    batch = batch_of(TEXT, codec=Codec.ZSTD)

    told = client.produce(topic, batch, version=6)
    assert told.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce(topic, batch, version=7).error_code == 0


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_stored_as_it_came(client: Asking, topic: str, codec: Codec) -> None:
    client.create(topic)
    sent = batch_of(TEXT, TEXT, codec=codec)
    client.produce(topic, sent)
    found = client.fetch(topic, 0)

    # All but the leader's stamps: base offset, length, epoch.
    assert bytes(found.records)[16:] == sent[16:]  # type: ignore[arg-type]
    assert [one.value for one in records_in(found)] == [TEXT, TEXT]


def test_records_with_bad_timestamps_are_named_one_by_one(client: Asking, topic: str) -> None:
    client.create(
        topic, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"
    )
    now = SystemClock().now()
    batch = batch_of(b"ok", b"old", b"ok", b"new", timestamp=[now, now - 60_000, now, now + 60_000])
    told = client.produce(topic, batch)

    assert told.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [one.batch_index for one in told.record_errors] == [1, 3]
    assert all(one.batch_index_error_message for one in told.record_errors)
    old_client = client.produce(topic, batch, version=7)
    assert old_client.error_code == ErrorCode.INVALID_TIMESTAMP
    assert client.produce(topic, batch_of(b"undated", timestamp=-1)).error_code == 0


# --- idempotent producers -----------------------------------------------------------------------


def test_a_repeated_batch_is_answered_as_the_first_time(client: Asking, topic: str) -> None:
    client.create(topic)
    producer = client.new_producer()
    batches = [batch_of(b"x", b"y", producer=(producer, 0, 2 * n)) for n in range(5)]
    first = [client.produce(topic, one).base_offset for one in batches]
    again = [client.produce(topic, one).base_offset for one in batches]

    assert first == again == [0, 2, 4, 6, 8]
    assert client.start_and_end(topic) == (0, 10)


def test_a_batch_that_was_forgotten_is_out_of_order(client: Asking, topic: str) -> None:
    client.create(topic)
    producer = client.new_producer()
    batches = [batch_of(b"x", producer=(producer, 0, n)) for n in range(6)]
    for one in batches:
        client.produce(topic, one)

    told = client.produce(topic, batches[0])
    assert told.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_sequences_is_refused(client: Asking, topic: str) -> None:
    client.create(topic)
    producer = client.new_producer()
    client.produce(topic, batch_of(b"x", producer=(producer, 0, 0)))

    told = client.produce(topic, batch_of(b"z", producer=(producer, 0, 2)))
    assert told.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, batch_of(b"y", producer=(producer, 0, 1))).base_offset == 1


def test_an_unknown_producer_may_begin_anywhere(client: Asking, topic: str) -> None:
    client.create(topic)

    told = client.produce(topic, batch_of(b"x", producer=(client.new_producer(), 0, 7)))
    assert told.error_code == 0


def test_a_newer_epoch_fences_the_older_one(client: Asking, topic: str) -> None:
    client.create(topic)
    producer = client.new_producer()
    client.produce(topic, batch_of(b"x", producer=(producer, 0, 0)))

    late_start = client.produce(topic, batch_of(b"y", producer=(producer, 1, 5)))
    assert late_start.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, batch_of(b"y", producer=(producer, 1, 0))).base_offset == 1
    fenced = client.produce(topic, batch_of(b"z", producer=(producer, 0, 1)))
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_begin_again_after_the_last_number(client: Asking, topic: str) -> None:
    client.create(topic)
    producer, last = client.new_producer(), (1 << 31) - 1
    across = batch_of(b"a", b"b", b"c", producer=(producer, 0, last - 1))
    client.produce(topic, across)

    assert client.produce(topic, across).base_offset == 0
    assert client.produce(topic, batch_of(b"d", producer=(producer, 0, 1))).base_offset == 3


def test_pipelined_produces_are_answered_in_order(client: Asking, topic: str) -> None:
    client.create(topic)
    for number in range(50):
        client.send(produce_request(topic, batch_of(b"%d" % number)), 9, correlation_id=number)
    replies = [client.receive(ApiKey.PRODUCE, 9, correlation_id=number) for number in range(50)]

    offsets = [one.responses[0].partition_responses[0].base_offset for one in replies]
    assert offsets == list(range(50))


def test_the_versions_that_are_only_advertised_are_not_served(client: Asking) -> None:
    client.send_frame(bytes.fromhex("0000 0002 00000007 ffff 0001 00000001 00000000"))

    with pytest.raises(HungUpError):
        client.receive_frame()

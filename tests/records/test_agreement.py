"""Other implementations read our batches as we do, and we theirs."""

from functools import cache
from types import ModuleType
from typing import Any

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
)
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import (
    DefaultRecordBatch as KafkaPythonBatch,
)
from kafka.record.default_records import (
    DefaultRecordBatchBuilder as KafkaPythonBuilder,
)

from tests.records.capture import PRODUCER_EPOCH, PRODUCER_ID, TOPIC, CaptureBroker
from tests.records.messages import SAMPLE, Message, as_records, build, dated_messages
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.records.batch import BatchBuilder, Record, check_contents, records_of
from waystation.records.compression import Codec
from waystation.records.header import check_produced, peek

# kafka-python's snappy needs a library of its own, which nothing else here does.
KAFKA_PYTHON_CODECS = [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD]


def built_by(builder_type: Any, messages: list[Message], codec: Codec, **fields: int) -> bytes:
    builder = builder_type(
        magic=2,
        compression_type=int(codec),
        is_transactional=fields.get("is_transactional", 0),
        producer_id=fields.get("producer_id", -1),
        producer_epoch=fields.get("producer_epoch", -1),
        base_sequence=fields.get("base_sequence", -1),
        batch_size=1 << 22,
    )
    for offset, (key, value, headers, timestamp) in enumerate(messages):
        assert builder.append(offset, timestamp, key, value, list(headers)) is not None
    return bytes(builder.build())


def read_by(batch_type: Any, batch: bytes) -> list[Record]:
    theirs = batch_type(bytearray(batch))
    assert theirs.validate_crc()
    return [
        Record(r.offset, r.timestamp, r.key, r.value, tuple(tuple(pair) for pair in r.headers))
        for r in theirs
    ]


@given(dated_messages, st.booleans())
def test_batches_have_the_bytes_of_aiokafkas(messages: list[Message], idempotent: bool) -> None:
    fields = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 7} if idempotent else {}
    theirs = built_by(AiokafkaBuilder, messages, Codec.NONE, **fields)

    builder = BatchBuilder()
    if idempotent:
        builder = BatchBuilder(Codec.NONE, ProducerId(5), ProducerEpoch(1), 7)
    assert build(messages, builder=builder) == theirs


@given(dated_messages)
def test_batches_have_the_bytes_of_kafka_pythons(messages: list[Message]) -> None:
    """But for the leader epoch, which it leaves 0 and the broker overwrites."""
    theirs = built_by(KafkaPythonBuilder, messages, Codec.NONE)
    ours = build(messages)

    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


@pytest.mark.parametrize("codec", Codec)
def test_aiokafka_and_we_read_one_another(either: ModuleType, codec: Codec) -> None:
    theirs = built_by(AiokafkaBuilder, SAMPLE, codec)

    assert peek(theirs).codec is codec
    check_contents(theirs, check_produced(theirs))
    assert records_of(theirs) == as_records(SAMPLE)
    assert read_by(AiokafkaBatch, build(SAMPLE, codec)) == as_records(SAMPLE)


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_kafka_python_and_we_read_one_another(either: ModuleType, codec: Codec) -> None:
    theirs = built_by(KafkaPythonBuilder, SAMPLE, codec)

    assert peek(theirs).codec is codec
    check_contents(theirs, check_produced(theirs))
    assert records_of(theirs) == as_records(SAMPLE)
    assert read_by(KafkaPythonBatch, build(SAMPLE, codec)) == as_records(SAMPLE)


# --- librdkafka -----------------------------------------------------------------------------

LETTERS = [Message(b"key-%d" % i, b"value " * 40, (), 1_700_000_000_000 + i) for i in range(50)] + [
    Message(None, b"no key"),
    Message(b"tombstone", None),
    Message(b"headers", b"", (("a", b"1"), ("empty", b""), ("null", None))),
]


@cache
def produced_by_librdkafka(codec: Codec, idempotent: bool) -> list[bytes]:
    with CaptureBroker() as broker:
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{broker.port}",
                "compression.type": codec.name.lower(),
                "enable.idempotence": idempotent,
                "linger.ms": 5000,  # flush() does not wait for it
            }
        )
        for key, value, headers, timestamp in LETTERS:
            producer.produce(TOPIC, value, key, 0, timestamp=timestamp, headers=list(headers))
        assert producer.flush(20) == 0, "librdkafka could not produce"
    return broker.produced


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", Codec)
def test_batches_of_librdkafka_are_accepted_and_read(
    either: ModuleType, codec: Codec, idempotent: bool
) -> None:
    (batch,) = produced_by_librdkafka(codec, idempotent)
    header = check_produced(batch)
    check_contents(batch, header)

    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
        (PRODUCER_ID, PRODUCER_EPOCH, 0) if idempotent else (-1, -1, -1)
    )
    assert records_of(batch) == as_records(LETTERS)


@pytest.mark.parametrize("codec", Codec)
def test_librdkafka_reads_our_batches(codec: Codec) -> None:
    with CaptureBroker(to_serve=build(SAMPLE, codec)) as broker:
        consumer = Consumer(
            {"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": "reader"}
            | {"enable.auto.commit": False, "check.crcs": True}
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found = consumer.consume(len(SAMPLE), timeout=20)
        consumer.close()

    assert [message.error() for message in found] == [None] * len(SAMPLE)
    assert [
        Record(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ()))
        for m in found
    ] == as_records(SAMPLE)

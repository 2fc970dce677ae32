"""Other clients read what a view serves: only what matches, and past everything else."""

import struct
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from confluent_kafka import Consumer, TopicPartition
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.filters.test_narrowing import batch_of, marker, narrowed, shown
from tests.records.capture import TOPIC, CaptureBroker, string
from waystation.filters.narrowing import Narrowing
from waystation.filters.selecting import Filter
from waystation.records.compression import Codec
from waystation.records.header import batches

# Three answers: nothing matches; a match in the middle; nothing again.
WINDOWS = [
    batch_of("nnn", 0) + batch_of("nn", 3, Codec.LZ4),
    batch_of("n", 5) + batch_of("nyn", 6) + batch_of("yy", 9, Codec.GZIP) + batch_of("nnn", 11),
    batch_of("n" * 50, 14),
]
END = 64


class ViewBroker(CaptureBroker):
    """Answers a fetch with what is left of the window that holds its offset."""

    def __init__(self, windows: list[bytes], aborted: tuple[int, int] | None = None) -> None:
        super().__init__()
        self._windows, self._aborted = windows, aborted
        self.asked: list[int] = []

    def _fetch(self, body: bytes = b"", version: int = 0) -> bytes:
        self.asked.append(_offset_in(body, version))
        window = next((one for one in self._windows if _end_of(one) > self.asked[-1]), b"")
        data = Narrowing(Filter("key = 'yes'"), 0).take(window).data
        aborted = () if self._aborted is None else (self._aborted,)
        head = struct.pack(">ihi", 0, 0, 0) + struct.pack(">i", 1) + string(TOPIC)
        head += struct.pack(">iihqqqi", 1, 0, 0, 1 << 40, 1 << 40, 0, len(aborted))
        head += b"".join(struct.pack(">qq", *one) for one in aborted)
        return head + struct.pack(">i", len(data)) + data


def _offset_in(body: bytes, version: int) -> int:
    """The one offset that a fetch asks for; -1 if it asks for what it asked before."""
    at = 4 + 4 + 4 + 4 + 1 + 4 + 4
    (topics,) = struct.unpack_from(">i", body, at)
    if not topics:
        return -1
    at += 4 + len(string(TOPIC)) + 4 + 4 + (4 if version >= 9 else 0)
    offset: int = struct.unpack_from(">q", body, at)[0]
    return offset


def _end_of(window: bytes) -> int:
    return [header.next_offset for _, header in batches(window)][-1]


def read_by_librdkafka(broker: ViewBroker, end: int) -> list[int]:
    """Offsets of all messages until it asks for what follows the end."""
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": "reader"}
        | {"enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    for _ in range(400):
        message = consumer.poll(0.05)
        if message is not None:
            assert message.error() is None
            found.append(message.offset())
        elif broker.asked and broker.asked[-1] >= end:
            break
    consumer.close()
    return found


def test_librdkafka_gets_what_matches_and_moves_on() -> None:
    with ViewBroker(WINDOWS) as broker:
        found = read_by_librdkafka(broker, END)

    assert found == [7, 9, 10]
    assert broker.asked[-1] == END


def test_librdkafka_leaves_out_what_was_aborted_and_nothing_else() -> None:
    windows = [
        batch_of("yn", 0, transactional=True) + batch_of("nn", 2, producer=8, transactional=True),
        marker(4, committed=False)
        + batch_of("nnn", 5)
        + batch_of("ny", 8, transactional=True)
        + marker(10, committed=True),
    ]
    with ViewBroker(windows, aborted=(7, 0)) as broker:
        found = read_by_librdkafka(broker, 11)

    assert found == [9], "the marker ends what was aborted, and what follows counts"
    assert broker.asked[-1] == 11


@pytest.mark.parametrize("records", [AiokafkaRecords, KafkaPythonRecords])
def test_clients_in_python_read_batches_of_views(records: Any) -> None:
    source = b"".join(WINDOWS)
    view = narrowed(source).data
    found, end = [], 0
    theirs = records(view)
    while theirs.has_next():
        batch = theirs.next_batch()
        assert batch.validate_crc()
        found += [(one.offset, one.timestamp, one.key, one.value) for one in batch]
        end = batch.next_offset

    assert end == END
    assert found == [one[:4] for one in shown(source) if one.key == b"yes"]

"""Topics whose options are tried: what fills them, and what is found of them."""

from tests.apis.asking import Asking
from tests.apis.kit import ThreadedNode, batch_of
from waystation.messages.produce_once import ProduceOnceRequest, ProduceOnceResponse
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.header import peek
from waystation.records.once import HEADER_NAME
from waystation.runtime.clock import SystemClock

BATCH = batch_of(b"x" * 500)
HOUR = "3600000"


def partition_of(node: ThreadedNode, topic: str) -> Partition:
    return node.node.broker.replicas.get(topic, 0)


def files_of(node: ThreadedNode, topic: str, suffix: str) -> list[str]:
    folder = partition_of(node, topic).log.path
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))


def fill(client: Asking, topic: str, count: int = 4) -> None:
    for _ in range(count):
        client.produce(topic, BATCH)


def keyed(number: int, key: bytes = b"key", timestamp: int | None = None) -> bytes:
    return batch_of(b"%500d" % number, keys=[key], timestamp=timestamp)


def fill_key(client: Asking, topic: str, count: int = 4, timestamp: int | None = None) -> None:
    for number in range(count):
        assert client.produce(topic, keyed(number, timestamp=timestamp)).error_code == 0


def stored_once(client: Asking, topic: str, key: str) -> ProduceOnceResponse:
    builder = BatchBuilder()
    builder.append(None, b"v", ((HEADER_NAME, key.encode()),), timestamp=SystemClock().now())
    request = ProduceOnceRequest(topic=topic, timeout_ms=9_000, records=builder.build())
    told: ProduceOnceResponse = client.ask(request, 0)
    return told


def offsets_in(client: Asking, topic: str) -> list[int]:
    end = client.start_and_end(topic)[1]
    found, offset = [], 0
    while offset < end:
        batch = bytes(client.fetch(topic, offset, partition_max_bytes=1).records)  # type: ignore[arg-type]
        found += [record.offset for record in records_of(batch)]
        offset = peek(batch).next_offset
    return found

"""What a Produce request costs to read and its response to write, against kio.

Run ``python -m benchmarks.wire.produce``.  One topic, one partition, 16 KB of records: the
request that a busy broker sees most.  Rounds alternate between the two codecs and the
best of each counts, so the ratio holds on a busy machine where the microseconds do not.

kio reads with a compiled extension and writes in Python; ours is Python both ways.
"""

import io
from collections.abc import Callable
from time import perf_counter
from uuid import UUID

from kio.serial import entity_reader, entity_writer
from tests.messages.twin import twin_of, twin_type

from waystation.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = UUID("8f3c1f5a-0c35-4f55-9d0e-5a4f3b2c1d00")
CALLS, ROUNDS = 5_000, 9


def request(version: int) -> ProduceRequest:
    """A request with one batch, its topic named as ``version`` names it."""
    partition = PartitionProduceData(index=3, records=memoryview(bytes(16_384)))
    topic = TopicProduceData(partition_data=[partition])
    if version < 13:
        topic.name = "orders"
    else:
        topic.topic_id = TOPIC_ID
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def response(version: int) -> ProduceResponse:
    """The response of a broker that appended the batch."""
    partition = PartitionProduceResponse(index=3, base_offset=123_456, log_start_offset=0)
    topic = TopicProduceResponse(partition_responses=[partition])
    if version < 13:
        topic.name = "orders"
    else:
        topic.topic_id = TOPIC_ID
    return ProduceResponse(responses=[topic])


def best_us(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """The best round of each, in microseconds per call."""
    rounds = [(_round_us(ours), _round_us(theirs)) for _ in range(ROUNDS)]
    return min(mine for mine, _ in rounds), min(other for _, other in rounds)


def _round_us(call: Callable[[], object]) -> float:
    begun = perf_counter()
    for _ in range(CALLS):
        call()
    return (perf_counter() - begun) / CALLS * 1e6


def decoding(version: int) -> tuple[float, float]:
    """Reading a request: we leave the records where they are, kio copies them."""
    encoded = request(version).encode(version)
    view = memoryview(encoded)
    read = entity_reader(twin_type(ProduceRequest, version))
    return best_us(lambda: ProduceRequest.decode(view, version), lambda: read(encoded, 0))


def encoding(version: int) -> tuple[float, float]:
    """Writing a response that is at hand."""
    ours = response(version)
    theirs_type = twin_type(ProduceResponse, version)
    theirs = twin_of(ours, theirs_type)
    write = entity_writer(theirs_type)
    return best_us(lambda: ours.encode(version), lambda: write(io.BytesIO(), theirs))


def main() -> None:
    """Print one line per version and direction."""
    print(f"{'Produce, 1 topic, 1 partition':32}{'ours':>9}{'kio':>9}{'ratio':>8}")
    for version in (7, 9, 13):
        for name, measure in (("decode request", decoding), ("encode response", encoding)):
            ours, theirs = measure(version)
            title = f"{name} v{version}"
            print(f"{title:32}{ours:6.2f} µs{theirs:6.2f} µs{theirs / ours:7.1f}x")


if __name__ == "__main__":
    main()

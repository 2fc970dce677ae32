"""The options of a topic that say how large its files get, and when another one begins."""

from tests.apis.asking import TOPIC, Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode
from tests.apis.options import shows
from tests.apis.topic_options import BATCH, HOUR, files_of, fill, partition_of
from waystation.runtime.chance import SystemChance
from waystation.runtime.clock import SystemClock


@shows("segment.bytes")
def test_a_segment_is_rolled_before_it_is_too_large(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    client.create(topic)
    fill(client, topic)
    assert len(files_of(node, topic, ".log")) == 1
    client.configure(TOPIC, topic, segment_bytes=str(2 * len(BATCH)))
    fill(client, topic)

    assert [name[-6:-4] for name in files_of(node, topic, ".log")] == ["00", "04", "06"]


@shows("segment.ms")
def test_a_segment_is_rolled_when_it_is_too_old(
    tidy: ThreadedNode, tidily: Asking, topic: str
) -> None:
    tidily.create(topic)
    fill(tidily, topic)
    tidily.configure(TOPIC, topic, segment_ms="1")

    tidy.until(lambda: len(files_of(tidy, topic, ".log")) == 2)


class Luckless(SystemChance):
    """Draws the greatest number there is."""

    def below(self, limit: int) -> int:
        return limit - 1


@shows("segment.jitter.ms")
def test_a_segment_may_be_rolled_earlier_by_chance(make_node: MakeNode, topic: str) -> None:
    running = make_node(Luckless())
    with Asking(*running.address) as client:
        client.create(topic, segment_ms=HOUR)
        fill(client, topic)
        log = partition_of(running, topic).log
        now = SystemClock().now()
        assert not running.call(lambda: log.maybe_roll(now))
        client.configure(TOPIC, topic, segment_jitter_ms=HOUR)

        running.until(lambda: len(log.segments) == 2)


@shows("index.interval.bytes", "segment.index.bytes")
def test_an_index_is_as_dense_and_as_large_as_told(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    client.create(topic)
    fill(client, topic)
    log = partition_of(node, topic).log
    sparse = log.active.index_bytes
    client.configure(TOPIC, topic, index_interval_bytes="0")
    fill(client, topic)
    dense = log.active.index_bytes

    assert sparse < dense
    client.configure(TOPIC, topic, segment_index_bytes="24")
    fill(client, topic, 12)
    assert len(log.segments) >= 3
    assert all(one.index_bytes <= 32 for one in log.segments[1:])

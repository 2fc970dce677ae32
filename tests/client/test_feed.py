"""What was fetched comes out in order, once, checked, and without what is not for eyes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.feed import Feed
from waystation.filters.selecting import Filter
from waystation.messages.fetch import AbortedTransaction
from waystation.model.errors import CorruptBatchError
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import ATTRIBUTES_AT, stamp

WHERE = TopicPartition("orders", 0)
_CONTROL = 0x20


def batch(
    base: int, values: list[bytes], *, producer: int = -1, transactional: bool = False
) -> bytearray:
    builder = BatchBuilder(
        Codec.NONE,
        ProducerId(producer),
        ProducerEpoch(0 if producer >= 0 else -1),
        0 if producer >= 0 else -1,
        is_transactional=transactional,
    )
    for value in values:
        builder.append(None, value, timestamp=Millis(1000))
    return stamped(bytearray(builder.build()), base)


def stamped(raw: bytearray, base: int) -> bytearray:
    stamp(raw, 0, Offset(base), LeaderEpoch(0))
    return raw


def marker(base: int, producer: int, kind: int) -> bytearray:
    """A control batch: kind 0 aborts, 1 commits."""
    from crc32c import crc32c

    builder = BatchBuilder(
        Codec.NONE, ProducerId(producer), ProducerEpoch(0), 0, is_transactional=True
    )
    builder.append(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), timestamp=Millis(1))
    raw = stamped(bytearray(builder.build()), base)
    raw[ATTRIBUTES_AT + 1] |= _CONTROL
    struct.pack_into(">I", raw, 17, crc32c(raw[ATTRIBUTES_AT:]))
    return raw


def feed_at(offset: int, where: str | None = None) -> Feed:
    feed = Feed(WHERE, limit_bytes=1 << 20, where=None if where is None else Filter(where))
    feed.seek(Offset(offset))
    return feed


def offsets(feed: Feed, limit: int = 100) -> list[int]:
    return [message.offset for message in feed.take(limit)]


def test_messages_carry_the_fields_of_their_record_and_place() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"value", [("h", b"1")], timestamp=Millis(77))
    feed = feed_at(5)
    feed.add(memoryview(stamped(bytearray(builder.build()), 5)))
    (message,) = feed.take(10)

    assert message == (b"k", b"value", "orders", 0, 5, 77, (("h", b"1"),))
    assert message.size == 6


def test_the_position_moves_with_what_is_taken_not_with_what_is_fetched() -> None:
    feed = feed_at(0)
    feed.add(memoryview(batch(0, [b"a", b"b", b"c"])))

    assert feed.position == 0
    assert feed.fetch_at == 3
    assert offsets(feed, 2) == [0, 1]
    assert feed.position == 2
    assert offsets(feed, 2) == [2]


def test_messages_before_the_position_are_left_out() -> None:
    feed = feed_at(1)
    feed.add(memoryview(batch(0, [b"a", b"b", b"c"])))

    assert offsets(feed) == [1, 2]


def test_a_batch_that_came_twice_is_taken_once() -> None:
    feed = feed_at(0)
    raw = batch(0, [b"a", b"b"]) + batch(2, [b"c"])
    feed.add(memoryview(raw))
    feed.add(memoryview(raw))

    assert offsets(feed) + offsets(feed) + offsets(feed) == [0, 1, 2]


def test_a_cut_off_tail_is_fetched_again() -> None:
    feed = feed_at(0)
    feed.add(memoryview(batch(0, [b"a"]) + batch(1, [b"b"])[:-3]))

    assert feed.fetch_at == 1


def test_a_corrupt_batch_raises_names_the_place_and_hands_out_nothing_of_it() -> None:
    feed = feed_at(0)
    raw = batch(0, [b"a"]) + batch(1, [b"broken"])
    raw[-1] ^= 1
    feed.add(memoryview(raw))

    assert offsets(feed) == [0]
    with pytest.raises(CorruptBatchError, match=r"orders-0 at offset 1.*seek to 2"):
        feed.take(10)
    assert feed.position == feed.fetch_at == 1


def test_a_seek_forgets_what_waits() -> None:
    feed = feed_at(0)
    feed.add(memoryview(batch(0, [b"a", b"b"])))
    life = feed.life
    feed.seek(Offset(9))

    assert feed.life != life
    assert feed.buffered_bytes == 0
    assert offsets(feed) == []
    assert feed.position == 9


def test_markers_are_passed_over() -> None:
    feed = feed_at(0)
    feed.add(memoryview(batch(0, [b"a"]) + marker(1, 7, 1) + batch(2, [b"b"]) + marker(3, 7, 1)))
    taken = [offset for _ in range(4) for offset in offsets(feed)]

    assert taken == [0, 2]
    assert feed.position == 4


def test_aborted_records_are_left_out_up_to_their_marker() -> None:
    feed = feed_at(0)
    raw = (
        batch(0, [b"a"], producer=7, transactional=True)
        + batch(1, [b"b"], producer=8, transactional=True)
        + marker(2, 7, 0)
        + batch(3, [b"c"], producer=7, transactional=True)
        + marker(4, 7, 1)
    )
    feed.add(memoryview(raw), [AbortedTransaction(producer_id=7, first_offset=0)])
    taken = [offset for _ in range(6) for offset in offsets(feed)]

    assert taken == [1, 3]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=10),
    st.lists(st.integers(1, 7), min_size=1),
    st.data(),
)
def test_everything_comes_out_in_order_and_once(
    sizes: list[int], limits: list[int], data: st.DataObject
) -> None:
    """However batches are cut into answers and answers into polls."""
    raw, base, ends = bytearray(), 0, []
    for size in sizes:
        raw += batch(base, [b"v"] * size)
        base += size
        ends.append(len(raw))
    start = data.draw(st.integers(0, base - 1))
    feed = feed_at(start)
    feed.add(memoryview(raw)[: data.draw(st.sampled_from(ends))])
    feed.add(memoryview(raw))
    taken: list[int] = []
    while feed.has_messages:
        taken += offsets(feed, limits[len(taken) % len(limits)])

    assert taken == list(range(start, base))
    assert feed.buffered_bytes == 0
    assert feed.position == base


# --- filters --------------------------------------------------------------------------------


def test_only_what_the_filter_chooses_comes_out() -> None:
    feed = feed_at(0, "value LIKE 'y%'")
    feed.add(memoryview(batch(0, [b"n", b"y1", b"n", b"y2", b"n"]) + batch(5, [b"n"])))

    assert offsets(feed, 1) == [1]
    assert feed.position == 2
    assert offsets(feed) == [3]
    assert feed.position == 5, "the rest of the batch is done with the last that was chosen"
    assert offsets(feed) == []
    assert feed.position == 6


def test_a_filter_sees_the_partition_and_starts_at_the_position() -> None:
    feed = feed_at(2, "partition = 0 AND offset < 4")
    feed.add(memoryview(batch(0, [b"a", b"b", b"c", b"d", b"e"])))

    assert offsets(feed) == [2, 3]
    assert feed.position == 5


def test_what_a_transaction_took_back_does_not_come_though_it_is_chosen() -> None:
    feed = feed_at(0, "value = 'y'")
    taken_back = batch(0, [b"y", b"n"], producer=7, transactional=True)
    raw = taken_back + marker(2, 7, 0) + batch(3, [b"n", b"y"], producer=7, transactional=True)
    feed.add(memoryview(raw), [AbortedTransaction(producer_id=7, first_offset=0)])

    assert [offset for _ in range(3) for offset in offsets(feed)] == [4]
    assert feed.position == 5


def test_a_corrupt_batch_is_found_though_nothing_of_it_would_be_chosen() -> None:
    feed = feed_at(0, "FALSE")
    raw = batch(0, [b"a"])
    raw[-1] ^= 1
    feed.add(memoryview(raw))

    with pytest.raises(CorruptBatchError, match="orders-0 at offset 0"):
        feed.take(10)

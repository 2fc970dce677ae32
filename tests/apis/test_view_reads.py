"""What a view shows is what its topic holds and matches, in order, however it is asked for."""

import random
import time
from typing import Any

import pytest

from tests.apis.asking import Asking, fetch_request, session_request
from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode, batch_of, versions
from tests.apis.transacting import Transacting
from tests.apis.viewing import COMMITTED, Walk, keyed, make_view, random_keys, walk
from tests.support.soak import count
from waystation.messages.count_matching import CountMatchingRequest
from waystation.messages.fetch import FetchPartition, FetchTopic
from waystation.messages.list_offsets import EARLIEST, LATEST
from waystation.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from waystation.model.errors import ErrorCode
from waystation.records.batch import Record, records_of
from waystation.records.compression import Codec
from waystation.records.header import batches, peek
from waystation.wire.versions import ApiKey

YES = "key = 'yes'"
LONG_MS = 15_000


@pytest.fixture
def view(client: Asking, topic: str) -> str:
    client.create(topic)
    make_view(client, f"v-{topic}", topic, YES)
    return f"v-{topic}"


def matching(source: Walk) -> list[Record]:
    """What a plain reader of the topic would have picked."""
    return [record for record in source.records if record.key == b"yes"]


def count_of(client: Asking, view: str, offset: int = 0, max_bytes: int = 1 << 30) -> Any:
    request = CountMatchingRequest(view=view, partition=0, offset=offset, max_bytes=max_bytes)
    return client.ask(request, 0)


# --- the same as picking from the topic -----------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_it_shows_exactly_what_matches_as_it_is(
    client: Asking, topic: str, view: str, version: int
) -> None:
    for _ in range(3):
        client.produce(topic, keyed("no", "yes", "no", "yes"))
    shown = walk(client, view, version=version)

    assert shown.records == matching(walk(client, topic))
    assert shown.offsets == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize("seed", range(count(6, 300)))
def test_any_log_gives_what_a_plain_reader_picks(
    client: Asking, topic: str, view: str, seed: int
) -> None:
    chance = random.Random(seed)
    share = chance.choice([0.0, 0.01, 0.1, 0.5, 1.0])
    for _ in range(chance.randint(1, 30)):
        keys = random_keys(chance, chance.randint(1, 60), share)
        codec = chance.choice(list(Codec))
        client.produce(topic, keyed(*keys, codec=codec, filler=chance.choice([0, 0, 800])))
    asked = {
        "max_bytes": chance.choice([1, 500, 20_000, 1 << 20]),
        "partition_max_bytes": chance.choice([1, 500, 20_000, 1 << 20]),
        "max_wait_ms": chance.choice([0, 10]),
        "min_bytes": chance.choice([0, 1, 5_000]),
    }
    expected = matching(walk(client, topic))

    assert walk(client, view, **asked).records == expected
    start = chance.randint(0, client.start_and_end(topic)[1])
    after = walk(client, view, start=start, **asked)
    assert after.records == [record for record in expected if record.offset >= start]
    counted = count_of(client, view, start)
    assert (counted.error_code, counted.matches) == (0, len(after.records))
    assert counted.next_offset == counted.end == client.start_and_end(topic)[1]


@pytest.mark.parametrize("seed", range(count(4, 100)))
def test_transactions_are_shown_and_left_out_as_in_the_topic(
    tess: Transacting, topic: str, seed: int
) -> None:
    chance = random.Random(seed)
    tess.create(topic)
    view = f"v-{topic}"
    make_view(tess, view, topic, "value LIKE 'yes%'")
    writer = tess.writer(f"{topic}-w")
    number = 0
    for _ in range(12):
        tess.add(writer, topic, 0)
        for part in range(chance.randint(1, 3)):
            values = [
                b"%s %d" % (chance.choice([b"yes", b"no", b"no"]), number + n) for n in range(3)
            ]
            number += 3
            code = tess.write(writer, topic, *values, sequence=3 * part)
            assert code == ErrorCode.NONE
            if chance.random() < 0.3:
                tess.produce(topic, batch_of(b"yes plain %d" % number, b"no plain"))
        writer = tess.commit(writer) if chance.random() < 0.5 else tess.abort(writer)
    tess.await_stable(topic)

    for isolation in (0, COMMITTED):
        source = walk(tess, topic, isolation_level=isolation)
        expected = [one for one in source.records if one.value and one.value.startswith(b"yes")]
        for limit in (1, 1 << 20):
            shown = walk(tess, view, isolation_level=isolation, max_bytes=limit)

            assert shown.records == expected
    assert expected


def test_what_is_open_is_not_shown_to_who_wants_it_committed(tess: Transacting, topic: str) -> None:
    tess.create(topic)
    make_view(tess, f"v-{topic}", topic, "value LIKE 'yes%'")
    tess.produce(topic, batch_of(b"yes 0", b"no"))
    writer = tess.writer(f"{topic}-w")
    tess.add(writer, topic, 0)
    tess.write(writer, topic, b"yes 2")
    tess.produce(topic, batch_of(b"yes 3"))

    assert walk(tess, f"v-{topic}").offsets == [0, 2, 3]
    assert walk(tess, f"v-{topic}", isolation_level=COMMITTED).offsets == [0]

    tess.commit(writer)
    tess.await_stable(topic)

    assert walk(tess, f"v-{topic}", isolation_level=COMMITTED).offsets == [0, 2, 3]


def test_what_compaction_left_is_shown(make_node: MakeNode, topic: str) -> None:
    node = make_node(
        log_cleaner_backoff_ms="20",
        log_flush_offset_checkpoint_interval_ms="1",
        recovery_bytes_max="0",
    )
    view = f"v-{topic}"
    with Asking(*node.address) as client:
        client.create(
            topic, cleanup_policy="compact", segment_bytes="2000", min_cleanable_dirty_ratio="0.01"
        )
        make_view(client, view, topic, "value.key LIKE 'k1%'")
        for _ in range(12):
            client.produce(topic, keyed(*(f"k{n}" for n in range(16))))
        full = walk(client, topic)
        deadline = time.monotonic() + 20
        while len((source := walk(client, topic)).records) > len(full.records) // 2:
            assert time.monotonic() < deadline, "nothing is compacted"
            time.sleep(0.02)
        shown = walk(client, view)

    # What is compacted meanwhile may be in one and not in the other.
    wanted = [one for one in source.records if one.key is not None and one.key.startswith(b"k1")]
    assert {one.key for one in shown.records} == {one.key for one in wanted}
    assert set(shown.offsets) <= {
        one.offset for one in full.records if one.key in {b"k1", *(b"k1%d" % n for n in range(6))}
    }
    assert shown.offsets == sorted(shown.offsets)
    assert shown.offsets[-7:] == [one.offset for one in wanted][-7:]


def test_what_is_deleted_before_an_offset_is_gone_from_the_view(
    client: Asking, topic: str, view: str
) -> None:
    for _ in range(4):
        client.produce(topic, keyed("no", "yes"))
    assert walk(client, view).offsets == [1, 3, 5, 7]

    client.delete_records(topic, 4)

    assert client.fetch(view, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert walk(client, view, start=4).offsets == [5, 7]
    assert client.start_and_end(view) == (4, 8)
    assert count_of(client, view, 0).matches == 2


# --- where nothing matches ------------------------------------------------------------------------


def test_a_long_stretch_without_a_match_is_crossed_and_not_looked_at_again(
    node: ThreadedNode, client: Asking, topic: str, view: str
) -> None:
    for _ in range(40):
        client.produce(topic, keyed(*["no"] * 100, filler=500))
    client.produce(topic, keyed("yes"))
    meter = node.node.registry.counter("waystation_view_scanned_bytes_total", "")
    shown = walk(client, view, max_wait_ms=LONG_MS, min_bytes=1)
    looked = meter.value
    again = walk(client, view, max_wait_ms=LONG_MS, min_bytes=1)

    assert shown.offsets == again.offsets == [4_000]
    assert shown.answers == again.answers == 1
    assert shown.nbytes < 500
    assert meter.value - looked < 2_000, "known stretches were looked through again"


def test_an_answer_without_a_match_is_a_batch_without_records(
    client: Asking, topic: str, view: str
) -> None:
    client.produce(topic, keyed("no", "no", "no"))
    found = client.fetch(view, 0, max_wait_ms=30, min_bytes=1)
    header = peek(bytes(found.records))

    assert (header.base_offset, header.next_offset, header.records_count) == (0, 3, 0)
    assert found.high_watermark == 3
    assert not client.fetch(view, 3).records


def test_who_waits_for_matches_is_not_woken_by_others(
    client: Asking, other: Asking, topic: str, view: str
) -> None:
    client.send(fetch_request(view, 0, max_wait_ms=LONG_MS, min_bytes=1), 11)
    for _ in range(5):
        other.produce(topic, keyed("no", "no"))

    assert not client.has_reply(0.2)

    other.produce(topic, keyed("no", "yes"))
    found = client.receive(ApiKey.FETCH, 11).responses[0].partitions[0]

    assert [record.offset for record in records_of(bytes(found.records))] == [11]


def test_who_waits_for_more_gets_it_at_once(
    client: Asking, other: Asking, topic: str, view: str
) -> None:
    client.send(fetch_request(view, 0, max_wait_ms=LONG_MS, min_bytes=700), 11)
    other.produce(topic, keyed("yes"))

    assert not client.has_reply(0.1)

    for _ in range(8):
        other.produce(topic, keyed("yes", "no"))

    data = bytes(client.receive(ApiKey.FETCH, 11).responses[0].partitions[0].records)
    assert len(data) >= 700
    assert [header.base_offset for _, header in batches(data)][:3] == [0, 1, 3]


def test_a_topic_and_its_views_are_read_together(client: Asking, topic: str, view: str) -> None:
    make_view(client, f"w-{topic}", topic, "key = 'no'")
    client.produce(topic, keyed("yes", "no", "yes"))
    request = fetch_request(view, 0, max_wait_ms=LONG_MS, min_bytes=1)
    for name in (topic, f"w-{topic}", "unknown"):
        request.topics += fetch_request(name, 0).topics
    told = {one.topic: one.partitions[0] for one in client.ask(request, 11).responses}

    assert told["unknown"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    del request.topics[3]
    told = {one.topic: one.partitions[0] for one in client.ask(request, 11).responses}
    offsets = {
        name: [
            r.offset
            for at, _ in batches(bytes(one.records))
            for r in records_of(bytes(one.records), at)
        ]
        for name, one in told.items()
    }
    assert offsets == {topic: [0, 1, 2], view: [0, 2], f"w-{topic}": [1]}


@pytest.mark.parametrize("version", [7, 13, 18])
def test_a_session_mentions_it_when_there_is_news(
    client: Asking, topic: str, view: str, version: int
) -> None:
    name = "" if version >= 13 else view
    one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = [FetchTopic(topic=name, topic_id=client.topic_id(view), partitions=[one])]
    opened = client.ask(session_request(0, 0, wanted), version)
    client.produce(topic, keyed("no"))
    crossed = client.ask(session_request(opened.session_id, 1), version)
    one.fetch_offset = 1
    quiet = client.ask(session_request(opened.session_id, 2, wanted), version)
    client.produce(topic, keyed("yes"))
    found = client.ask(session_request(opened.session_id, 3), version)

    assert peek(bytes(crossed.responses[0].partitions[0].records)).next_offset == 1
    assert quiet.responses == []
    assert found.responses[0].partitions[0].records


# --- how much ------------------------------------------------------------------------------------


def test_an_answer_keeps_to_what_a_partition_may_give(
    client: Asking, topic: str, view: str
) -> None:
    for _ in range(10):
        client.produce(topic, keyed("yes", "no", "yes", filler=300))
    one = len(bytes(client.fetch(view, 0, partition_max_bytes=1).records))
    some = client.fetch(view, 0, partition_max_bytes=3 * one + 5)

    assert 700 < one < 1_200
    assert len(bytes(some.records)) == 3 * one
    assert len(bytes(client.fetch(view, 0).records)) == 10 * one
    assert walk(client, view, partition_max_bytes=1).answers == 10


def test_an_answer_keeps_to_what_all_may_give_together(
    client: Asking, topic: str, view: str
) -> None:
    make_view(client, f"w-{topic}", topic, "key <> 'no'")
    for _ in range(10):
        client.produce(topic, keyed("yes", "no", "yes", filler=300))
    one = len(bytes(client.fetch(view, 0, partition_max_bytes=1).records))
    request = fetch_request(view, 0, max_bytes=12 * one + 5, max_wait_ms=LONG_MS, min_bytes=1)
    request.topics += fetch_request(f"w-{topic}", 0).topics
    first, second = (
        len(bytes(told.partitions[0].records)) for told in client.ask(request, 11).responses
    )

    assert (first, second) == (10 * one, 2 * one)


# --- where it begins and ends ---------------------------------------------------------------------


def test_offsets_and_epochs_are_those_of_the_topic(client: Asking, topic: str, view: str) -> None:
    client.produce(topic, keyed("no", "yes", "no"))
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=view, partitions=[partition])]
    )
    (told,) = client.ask(asked, 4).topics[0].partitions

    assert client.offsets(view, LATEST).offset == 3
    assert client.offsets(view, EARLIEST).offset == 0
    assert client.offsets(view, 1_000).offset == client.offsets(topic, 1_000).offset == 0
    assert (told.error_code, told.end_offset) == (0, 3)


def test_an_offset_past_the_end_is_out_of_range(client: Asking, topic: str, view: str) -> None:
    client.produce(topic, keyed("yes"))

    assert client.fetch(view, 5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.fetch(view, 0, partition=3).error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert count_of(client, view, 5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert count_of(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_old_epoch_is_fenced(client: Asking, topic: str, view: str) -> None:
    client.produce(topic, keyed("yes"))

    told = client.fetch(view, 0, current_leader_epoch=9)
    assert told.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_counting_is_bounded_and_goes_on(client: Asking, topic: str, view: str) -> None:
    for _ in range(8):
        client.produce(topic, keyed(*["yes", "no"] * 200, filler=1_000))
    first = count_of(client, view, 0, max_bytes=1)

    assert 0 < first.next_offset < first.end
    matches, position = first.matches, first.next_offset
    while position < first.end:
        more = count_of(client, view, position, max_bytes=1)
        matches, position = matches + more.matches, more.next_offset
    assert matches == 1_600


# --- what is large --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_large_batches_are_looked_through_beside_everything_else(
    client: Asking, topic: str, codec: Codec
) -> None:
    client.create(topic, max_message_bytes=str(16 << 20))
    make_view(client, f"v-{topic}", topic, YES)
    for _ in range(3):
        keys = ["no"] * 2_000
        keys[700] = "yes"
        client.produce(topic, keyed(*keys, codec=codec, filler=1_000))
    shown = walk(client, f"v-{topic}", max_wait_ms=LONG_MS, min_bytes=1)

    assert shown.offsets == [700, 2_700, 4_700]
    assert shown.records == matching(
        walk(client, topic, max_bytes=64 << 20, partition_max_bytes=64 << 20)
    )


def test_a_reader_that_goes_away_stops_the_search(
    node: ThreadedNode, topic: str, view: str, client: Asking
) -> None:
    client.produce(topic, keyed(*["no"] * 100))
    with Asking(*node.address) as gone:
        gone.send(fetch_request(view, 0, max_wait_ms=LONG_MS, min_bytes=1), 11)
        node.until(lambda: len(node.node.broker.long_polls) > 0)

    node.until(lambda: len(node.node.broker.long_polls) == 0)
    assert walk(client, view, max_wait_ms=1, min_bytes=1).offsets == []

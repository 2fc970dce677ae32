"""What dead letters say of themselves, where they go back to, and which did."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.soak import count
from waystation.broker.outbound import read_notes, written_notes
from waystation.model.errors import CorruptBatchError, InvalidRequestError
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.record import Headers, Row
from waystation.scheduling.mover import LaneState
from waystation.scheduling.records import Decided
from waystation.sharing.dead_letters import (
    DELIVERIES_EXHAUSTED,
    REJECTED_BY_CONSUMER,
    Origin,
    dead_letter_headers,
    dead_letter_partition,
    origin_of,
    redriven_headers,
    redrives_of,
)
from waystation.sharing.redrive import (
    Redrive,
    RedriveOrder,
    addressed,
    blocked_name,
    check_order,
    passed,
    redrive_of,
    saved_redrive,
    target_of,
)
from waystation.sharing.redriven import Redriven

ORIGIN = Origin(
    TopicPartition("orders", 3), Offset(41), Millis(7), "g", 5, DELIVERIES_EXHAUSTED, Millis(9)
)
OWN: Headers = (("a", b"1"), ("a", None), ("priority", b"9"))

origins = st.builds(
    Origin,
    st.builds(TopicPartition, st.text("abc.-", min_size=1), st.integers(0, 9_999)),
    st.integers(0, 1 << 62).map(Offset),
    st.integers(-1, 1 << 60).map(Millis),
    st.text(),
    st.integers(0, 32_767),
    st.sampled_from([REJECTED_BY_CONSUMER, DELIVERIES_EXHAUSTED]),
    st.integers(0, 1 << 60).map(Millis),
)


@given(origins)
def test_what_is_said_of_a_dead_letter_is_understood(origin: Origin) -> None:
    headers = dead_letter_headers(OWN, origin)

    assert headers[:3] == OWN
    assert origin_of(headers) == origin


def test_names_are_those_of_kafka() -> None:
    said = dict(dead_letter_headers((), ORIGIN))

    assert said["__dlq.errors.topic"] == b"orders"
    assert said["__dlq.errors.partition"] == b"3"
    assert said["__dlq.errors.offset"] == b"41"
    assert said["__dlq.errors.group"] == b"g"
    assert said["__dlq.errors.delivery.count"] == b"5"
    assert b"5 times" in (said["__dlq.errors.message"] or b"")


def test_who_dies_again_says_where_it_died_last() -> None:
    back = redriven_headers(dead_letter_headers(OWN, ORIGIN))
    again = dead_letter_headers(back, ORIGIN._replace(group="other"))

    assert back == (*OWN, ("__dlq.redrives", b"1"))
    assert len(dict(again)) == len(again) - 1, "only a stands twice, as it did"
    assert origin_of(again) == ORIGIN._replace(group="other")
    assert redrives_of(redriven_headers(again)) == 2


@pytest.mark.parametrize(
    "headers", [(), OWN, (("__dlq.errors.topic", b"x"),), dead_letter_headers((), ORIGIN)[:1]]
)
def test_other_messages_say_nothing(headers: Headers) -> None:
    assert origin_of(headers) is None


def test_headers_that_somebody_made_up_harm_nobody() -> None:
    odd: Headers = (
        ("__dlq.errors.topic", b"\xff"),
        ("__dlq.errors.partition", b"x"),
        ("__dlq.errors.offset", b"1"),
        ("__dlq.redrives", b"many"),
    )

    assert origin_of(odd) is None
    assert redrives_of(odd) == 0


def row(key: bytes | None, headers: Headers) -> Row:
    return 0, 0, key, b"v", headers


def test_a_dead_letter_goes_back_to_its_partition_and_elsewhere_by_its_key() -> None:
    dead, counts = dead_letter_headers((), ORIGIN), {"orders": 4, "small": 2}

    def go(one: Row, to: str = "") -> Any:
        return target_of(one, to, lambda name: counts[name], lambda key, count: len(key) % count)

    assert go(row(b"k", dead)) == ("orders", 3)
    assert go(row(b"k", dead), "small") == ("small", 1)
    assert go(row(None, dead), "small") == ("small", 1)
    assert go(row(b"k", ())) is None
    assert go(row(b"kk", ()), "small") == ("small", 0)
    counts["orders"] = 2
    assert go(row(b"k", dead)) == ("orders", 1)
    assert dead_letter_partition(5, 3) == 2


def test_what_has_the_key_of_a_refused_message_stays_and_is_counted_once() -> None:
    dead = dead_letter_headers((), ORIGIN)
    rows: list[Row] = [
        (4, 0, b"a", b"", dead),
        (5, 0, b"b", b"", dead),
        (6, 0, None, b"", dead),
        (7, 0, b"a", b"", ()),
        (8, 0, None, b"", dead),
    ]
    order = RedriveOrder("r", Offset(0), Offset(9))
    blocked = (blocked_name(Offset(1), b"a"), blocked_name(Offset(6), None))
    redrive = Redrive(order, Millis(0), Offset(4), blocked=blocked)

    going, left = addressed(rows, redrive, lambda _: 4, lambda *_: 0)

    assert {target: [one[0] for one in some] for target, some in going.items()} == {
        ("orders", 3): [5, 8]
    }
    assert sorted(left) == [4, 6, 7]
    after = passed(redrive, left, Offset(5))
    assert (after.cursor, after.refused, after.strays) == (5, 1, 0)
    later = passed(after, left, Offset(9))
    assert (later.cursor, later.refused, later.strays) == (9, 2, 1)


@pytest.mark.parametrize(
    "order",
    [
        RedriveOrder("", Offset(0), Offset(1)),
        RedriveOrder("x" * 201, Offset(0), Offset(1)),
        RedriveOrder("r", Offset(-1), Offset(1)),
        RedriveOrder("r", Offset(2), Offset(1)),
        RedriveOrder("r", Offset(0), Offset(1), rate=-1.0),
        RedriveOrder("r", Offset(0), Offset(1), rate=float("nan")),
        RedriveOrder("r", Offset(0), Offset(1), since=Millis(2), until=Millis(1)),
    ],
)
def test_orders_that_cannot_be_meant_are_refused(order: RedriveOrder) -> None:
    with pytest.raises(InvalidRequestError):
        check_order(order)


def test_notes_say_what_was_noted() -> None:
    order = RedriveOrder("r", Offset(1), Offset(9), "key = 'ü'", rate=2.5)
    redrive = Redrive(order, Millis(5), Offset(4), moved=3, blocked=("00ff", "@7"))
    target = TopicPartition("dead", 1)
    decided = Decided(target, ProducerId(4), ProducerEpoch(2), 7, Millis(6), ((-1, 3), (5, 9)))
    lanes = {
        target: LaneState(ProducerId(4), ProducerEpoch(2), 9, decided, is_doubted=True),
        TopicPartition("dead", 2): LaneState(
            ProducerId(5), ProducerEpoch(0), 0, None, is_doubted=False
        ),
    }

    read, memo = read_notes(written_notes(lanes, {"redrive": saved_redrive(redrive)}))

    assert read == lanes
    assert redrive_of(memo["redrive"]) == redrive
    assert read_notes(b"") == ({}, {})
    assert redrive_of(None) is None


@pytest.mark.parametrize("damaged", [b"{", b"{}", b'{"version":2}', b"[]"])
def test_notes_that_cannot_be_read_are_told(damaged: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="notes"):
        read_notes(damaged)


@pytest.mark.parametrize("seed", range(count(30, 1_000)))
def test_what_went_back_is_known_over_changes_of_leader(seed: int) -> None:
    """Against a set of numbers."""
    random, gone = Random(seed), set[int]()
    queue = Redriven(Offset(0))
    for _ in range(60):
        if random.random() < 0.1 and queue.start:
            start = Offset(random.randrange(queue.start, queue.start + 5))
            queue.log_begins_at(start)
            gone |= set(range(start))
        if random.random() < 0.1:
            heir = Redriven(queue.start)
            heir.load(Millis(0), list(queue._backlog.stored_form(queue.start, queue.end)))
            queue = heir
        offset = random.randrange(40)
        queue.settle(Offset(offset))
        gone.add(offset)

        assert {n for n in range(50) if queue.is_settled(Offset(n))} == gone
        first = random.randrange(45)
        spans = queue.settled_spans(Offset(first), 1_000)
        assert {n for span in spans for n in range(*span)} == {n for n in gone if n >= first}

"""The assignors: complete, exclusive, even, sticky, the same on every machine, and quick."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.groups.assignors import (
    ASSIGNORS,
    Assignor,
    Subscriber,
    Targets,
    shared_by_range,
    uniform,
)
from waystation.groups.partition_sets import flat, grouped, size
from waystation.groups.records import Partitions
from waystation.model.ids import TopicId

TOPICS = [TopicId(UUID(int=1000 - i)) for i in range(6)]
both = pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)


def member(
    name: str, topics: Sequence[TopicId], held: Partitions = (), instance: str | None = None
) -> Subscriber:
    return Subscriber(name, instance, frozenset(topics), held)


def again(members: Sequence[Subscriber], targets: Targets) -> list[Subscriber]:
    """The same members, holding what was computed for them."""
    return [one._replace(held=targets.get(one.member_id, ())) for one in members]


def loads(targets: Targets) -> list[int]:
    return sorted(size(partitions) for partitions in targets.values())


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Subscriber], dict[TopicId, int]]:
    """Members with any subscriptions, who hold any partitions, of any size of topics."""
    counts = {topic: draw(st.integers(0, 9)) for topic in TOPICS[: draw(st.integers(1, 6))]}
    subsets = st.lists(st.sampled_from(sorted(counts)), unique=True)
    some_partitions = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 11)))
    alike = draw(subsets) if draw(st.booleans()) else None
    members = [
        member(f"m{i}", draw(subsets) if alike is None else alike, grouped(draw(some_partitions)))
        for i in range(draw(st.integers(1, 7)))
    ]
    wanted = {topic for one in members for topic in one.topics}
    return members, {topic: count for topic, count in counts.items() if topic in wanted}


def check_complete(
    members: Sequence[Subscriber], counts: Mapping[TopicId, int], targets: Targets
) -> None:
    assert sorted(targets) == sorted(one.member_id for one in members)
    given_out = [p for one in members for p in flat(targets[one.member_id])]
    assert len(given_out) == len(set(given_out)), "a partition was given twice"
    everything = {(topic, index) for topic, count in counts.items() for index in range(count)}
    assert set(given_out) == everything
    for one in members:
        assert {topic for topic, _ in targets[one.member_id]} <= one.topics


@both
@given(worlds(), st.randoms())
def test_each_partition_goes_to_one_subscriber_whatever_the_order(
    assign: Assignor, world: tuple[list[Subscriber], dict[TopicId, int]], random: Random
) -> None:
    members, counts = world
    targets = assign(members, counts)
    check_complete(members, counts, targets)

    random.shuffle(members)
    topics = list(counts)
    random.shuffle(topics)

    assert assign(members, {topic: counts[topic] for topic in topics}) == targets


@given(worlds())
def test_equal_subscriptions_get_equal_shares(
    world: tuple[list[Subscriber], dict[TopicId, int]],
) -> None:
    members, counts = world
    alike = [one._replace(topics=frozenset(counts)) for one in members]

    even = loads(uniform(alike, counts))

    assert even[-1] - even[0] <= 1


@given(worlds())
def test_computing_again_changes_nothing(
    world: tuple[list[Subscriber], dict[TopicId, int]],
) -> None:
    members, counts = world
    targets = uniform(members, counts)

    assert uniform(again(members, targets), counts) == targets


@given(worlds())
def test_with_equal_subscriptions_no_more_moves_than_must(
    world: tuple[list[Subscriber], dict[TopicId, int]],
) -> None:
    """Adding one moves its share and nothing else; removing one moves what it held."""
    members, counts = world
    alike = [one._replace(topics=frozenset(counts), held=()) for one in members]
    before = uniform(alike, counts)
    newcomer = member("new", list(counts))

    after = uniform([*again(alike, before), newcomer], counts)
    moved = sum(len(flat(after[m]) - flat(before[m])) for m in before)
    assert moved == 0

    gone, *rest = alike
    without = uniform(again(rest, before), counts)
    for one in rest:
        assert flat(without[one.member_id]) >= flat(before[one.member_id])
    assert gone.member_id not in without


def every_way(
    members: Sequence[Subscriber], counts: Mapping[TopicId, int]
) -> Iterator[tuple[int, ...]]:
    """The loads of every way to share out, largest first."""
    everything = [(topic, index) for topic, count in counts.items() for index in range(count)]
    takers = [
        [m for m, one in enumerate(members) if topic in one.topics] for topic, _ in everything
    ]
    for chosen in product(*takers):
        yield tuple(sorted((chosen.count(m) for m in range(len(members))), reverse=True))


@given(st.data())
def test_different_subscriptions_are_shared_as_evenly_as_any_way_could(data: st.DataObject) -> None:
    counts = {topic: data.draw(st.integers(1, 3)) for topic in TOPICS[:3]}
    subsets = st.lists(st.sampled_from(TOPICS[:3]), unique=True, min_size=1)
    members = [member(f"m{i}", data.draw(subsets)) for i in range(3)]
    wanted = {topic for one in members for topic in one.topics}
    counts = {topic: count for topic, count in counts.items() if topic in wanted}

    found = tuple(reversed(loads(uniform(members, counts))))

    assert found == min(every_way(members, counts))


def test_a_chain_of_gifts_evens_out_what_no_single_gift_could() -> None:
    first, second = TOPICS[:2]
    counts = {first: 4, second: 2}
    members = [
        member("a", [first], grouped((first, i) for i in range(3))),
        member("b", [first, second], grouped([(first, 3), (second, 0)])),
        member("c", [second], grouped([(second, 1)])),
    ]

    targets = uniform(members, counts)

    assert loads(targets) == [2, 2, 2]
    assert flat(targets["c"]) >= {(second, 1)}


def test_a_topic_is_spread_over_members() -> None:
    counts = dict.fromkeys(TOPICS[:2], 4)

    targets = uniform([member("a", TOPICS[:2]), member("b", TOPICS[:2])], counts)

    for partitions in targets.values():
        assert [len(indexes) for _, indexes in partitions] == [2, 2]


def test_nobody_gets_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign([], {}) == {}


# --- range ------------------------------------------------------------------------------------


def test_equal_partitions_of_topics_meet_at_one_member() -> None:
    counts = dict.fromkeys(TOPICS[:3], 7)
    members = [member(f"m{i}", TOPICS[:3]) for i in range(3)]

    targets = shared_by_range(members, counts)

    for partitions in targets.values():
        assert len({indexes for _, indexes in partitions}) == 1
    assert [targets[f"m{i}"][0][1] for i in range(3)] == [(0, 1, 2), (3, 4), (5, 6)]


def test_a_static_member_finds_its_stretch_under_another_id() -> None:
    counts = {TOPICS[0]: 6}
    before = [
        member("x", TOPICS[:1], instance="one"),
        member("y", TOPICS[:1], instance="two"),
        member("a", TOPICS[:1]),
    ]
    after = [before[0]._replace(member_id="zzz"), *before[1:]]

    assert shared_by_range(before, counts)["x"] == shared_by_range(after, counts)["zzz"]


# --- speed ------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("kind", ["fresh", "one more", "all on one", "different"])
def test_two_hundred_members_and_a_thousand_partitions_take_no_time(
    assign: Assignor, kind: str
) -> None:
    random = Random(7)
    topics = [TopicId(UUID(int=i + 1)) for i in range(20)]
    counts = dict.fromkeys(topics, 50)
    members = [member(f"m{i:03}", topics) for i in range(200)]
    if kind == "different":
        members = [one._replace(topics=frozenset(random.sample(topics, 5))) for one in members]
    elif kind == "all on one":
        members = again(members, assign(members[:1], counts))
    elif kind == "one more":
        members = [*again(members, assign(members, counts)), member("new", topics)]

    took = []
    for _ in range(3):
        started = time.perf_counter()
        assign(members, counts)
        took.append(time.perf_counter() - started)

    assert min(took) < 0.1

"""Every assignor shares everything out, once, and only to those who asked for it."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.assignors import (
    Assigned,
    Assignor,
    Subscriber,
    assign_by_range,
    assign_round_robin,
)
from waystation.client.sticky import assign_cooperatively, assign_sticky
from waystation.model.ids import TopicPartition

TOPICS = ["a", "b", "c", "d"]
ASSIGNORS = {
    "range": assign_by_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))


@st.composite
def subscribers(draw: st.DrawFn) -> list[Subscriber]:
    members = []
    for number in range(draw(st.integers(1, 8))):
        topics = tuple(draw(st.lists(st.sampled_from([*TOPICS, "gone"]), unique=True)))
        instance = draw(st.none() | st.just(f"i{9 - number}"))
        members.append(Subscriber(f"m{number}", topics, instance))
    return members


@st.composite
def owners(draw: st.DrawFn) -> list[Subscriber]:
    """Members that claim to own anything, of any generation, rightly or not."""
    places = st.builds(TopicPartition, st.sampled_from([*TOPICS, "gone"]), st.integers(0, 9))
    return [
        one._replace(owned=tuple(draw(st.lists(places, max_size=6))), generation=draw(_GENERATIONS))
        for one in draw(subscribers())
    ]


_GENERATIONS = st.integers(-1, 3)


def members_of(count: int, *topics: str) -> list[Subscriber]:
    return [Subscriber(f"m{number}", topics) for number in range(count)]


def after(members: list[Subscriber], assigned: Assigned, generation: int) -> list[Subscriber]:
    """The members as they join the next time."""
    return [
        one._replace(owned=tuple(assigned.get(one.member_id, ())), generation=generation)
        for one in members
    ]


def shared_out(assigned: Assigned) -> list[TopicPartition]:
    return sorted(where for mine in assigned.values() for where in mine)


def check_shares(members: list[Subscriber], partitions: dict[str, int], assigned: Assigned) -> None:
    topics = {topic for one in members for topic in one.topics}
    wanted = [
        TopicPartition(topic, number)
        for topic in sorted(topics & partitions.keys())
        for number in range(partitions[topic])
    ]
    assert sorted(assigned) == sorted(one.member_id for one in members)
    assert shared_out(assigned) == wanted
    for one in members:
        assert {where.topic for where in assigned[one.member_id]} <= set(one.topics)


# --- all --------------------------------------------------------------------------------------


@pytest.mark.parametrize("assign", [assign_by_range, assign_round_robin, assign_sticky])
@given(members=owners(), partitions=counts)
def test_everything_goes_to_exactly_one_subscriber(
    assign: Assignor, members: list[Subscriber], partitions: dict[str, int]
) -> None:
    check_shares(members, partitions, assign(members, partitions))


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(members=owners(), partitions=counts, seed=st.integers())
def test_the_order_of_the_members_does_not_matter(
    assign: Assignor, members: list[Subscriber], partitions: dict[str, int], seed: int
) -> None:
    shuffled = list(members)
    Random(seed).shuffle(shuffled)

    assert assign(shuffled, partitions) == assign(members, partitions)


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_payments_with_six_partitions_gives_three_members_two_each(assign: Assignor) -> None:
    assigned = assign(members_of(3, "payments"), {"payments": 6})

    assert [len(mine) for mine in assigned.values()] == [2, 2, 2]


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_a_seventh_member_of_six_partitions_sits_idle(assign: Assignor) -> None:
    assigned = assign(members_of(7, "payments"), {"payments": 6})

    assert Counter(len(mine) for mine in assigned.values()) == {1: 6, 0: 1}


# --- range and round robin --------------------------------------------------------------------


@given(members=subscribers(), partitions=counts)
def test_a_range_is_a_stretch_and_stretches_differ_by_one(
    members: list[Subscriber], partitions: dict[str, int]
) -> None:
    assigned = assign_by_range(members, partitions)

    for topic in partitions:
        readers = [one.member_id for one in members if topic in one.topics]
        stretches = [
            [where.partition for where in assigned[one] if where.topic == topic] for one in readers
        ]
        for stretch in stretches:
            assert all(after == before + 1 for before, after in pairwise(stretch))
        sizes = [len(stretch) for stretch in stretches]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_the_same_numbers_of_two_topics_go_to_the_same_member() -> None:
    assigned = assign_by_range(members_of(3, "a", "b"), {"a": 7, "b": 7})

    for mine in assigned.values():
        assert [n for topic, n in mine if topic == "a"] == [n for topic, n in mine if topic == "b"]


def test_round_robin_deals_as_kafka_documents_it() -> None:
    members = [
        Subscriber("c0", ("t0",)),
        Subscriber("c1", ("t0", "t1")),
        Subscriber("c2", ("t0", "t1", "t2")),
    ]
    assigned = assign_round_robin(members, {"t0": 1, "t1": 2, "t2": 3})

    assert {member: [f"{t}p{n}" for t, n in mine] for member, mine in assigned.items()} == {
        "c0": ["t0p0"],
        "c1": ["t1p0"],
        "c2": ["t1p1", "t2p0", "t2p1", "t2p2"],
    }


def test_a_static_member_keeps_its_place_under_another_member_id() -> None:
    before = [Subscriber("x", ("a",), "one"), Subscriber("a", ("a",), "two")]
    since = [Subscriber("a", ("a",), "two"), Subscriber("zz", ("a",), "one")]

    assert assign_by_range(before, {"a": 3})["x"] == assign_by_range(since, {"a": 3})["zz"]


# --- sticky -----------------------------------------------------------------------------------


@given(members=owners(), partitions=counts)
def test_a_sticky_assignment_is_balanced(
    members: list[Subscriber], partitions: dict[str, int]
) -> None:
    """No partition could go, directly or by way of others, to someone who has two fewer."""
    assigned = assign_sticky(members, partitions)

    topics = {one.member_id: set(one.topics) for one in members}
    for rich, mine in assigned.items():
        reached, line = {rich}, [rich]
        while line:
            for where in assigned[line.pop()]:
                for taker in topics:
                    if where.topic in topics[taker] and taker not in reached:
                        reached.add(taker)
                        line.append(taker)
        assert all(len(mine) - len(assigned[other]) < 2 for other in reached)


@given(members=owners(), partitions=counts)
def test_a_balanced_group_that_asks_again_gets_the_same(
    members: list[Subscriber], partitions: dict[str, int]
) -> None:
    assigned = assign_sticky(members, partitions)

    assert assign_sticky(after(members, assigned, 9), partitions) == assigned


@given(
    count=st.integers(2, 9), partitions=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
)
def test_who_stays_keeps_what_he_has_when_another_leaves(
    count: int, partitions: dict[str, int]
) -> None:
    members = members_of(count, *TOPICS)
    assigned = assign_sticky(members, partitions)
    since = assign_sticky(after(members, assigned, 1)[1:], partitions)

    for member, mine in since.items():
        assert set(assigned[member]) <= set(mine)


@given(
    count=st.integers(1, 9), partitions=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
)
def test_nobody_gives_up_more_than_the_new_member_gets(
    count: int, partitions: dict[str, int]
) -> None:
    members = members_of(count, *TOPICS)
    assigned = assign_sticky(members, partitions)
    new = Subscriber("new", tuple(TOPICS))
    since = assign_sticky([*after(members, assigned, 1), new], partitions)

    given_up = sum(len(set(assigned[one]) - set(since[one])) for one in assigned)
    assert given_up == len(since["new"])


def test_of_two_who_claim_a_partition_the_later_generation_keeps_it() -> None:
    claimed = (TopicPartition("a", 0), TopicPartition("a", 1))
    stale = Subscriber("m0", ("a",), owned=claimed, generation=3)
    fresh = Subscriber("m1", ("a",), owned=claimed[:1], generation=4)

    assigned = assign_sticky([stale, fresh], {"a": 2})

    assert assigned == {"m0": [claimed[1]], "m1": [claimed[0]]}


# --- cooperative ------------------------------------------------------------------------------


@given(members=owners(), partitions=counts)
def test_nobody_reads_what_another_still_owns(
    members: list[Subscriber], partitions: dict[str, int]
) -> None:
    assigned = assign_cooperatively(members, partitions)

    for one in members:
        for where in assigned[one.member_id]:
            others = [other for other in members if other is not one and where in other.owned]
            assert where in one.owned or not others


@given(members=subscribers(), partitions=counts, seed=st.integers())
def test_a_cooperative_group_settles_in_two_rounds(
    members: list[Subscriber], partitions: dict[str, int], seed: int
) -> None:
    """Whoever came or went: the second round shares out what the first held back."""
    chance = Random(seed)
    first = assign_cooperatively(members, partitions)
    stay = [one for one in after(members, first, 1) if chance.random() < 0.7]
    joined = [*stay, Subscriber("new", tuple(TOPICS))]
    second = assign_cooperatively(joined, partitions)
    third = assign_cooperatively(after(joined, second, 2), partitions)

    check_shares(joined, partitions, third)
    assert assign_cooperatively(after(joined, third, 3), partitions) == third

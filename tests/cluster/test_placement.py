"""Placement: spread, distinct and the same every time."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.cluster.parts import Site
from waystation.cluster.placement import check_assignment, machine_of, place
from waystation.model.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from waystation.model.ids import NodeId, TopicId

brokers = st.lists(st.integers(0, 99).map(NodeId), min_size=1, max_size=9, unique=True)
topic_ids = st.uuids().map(TopicId)


@given(topic_ids, brokers, st.integers(1, 60), st.data())
def test_replicas_differ_and_leaders_are_spread_evenly(
    topic_id: TopicId, brokers: list[NodeId], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(topic_id, range(partitions), factor, map(Site, brokers))

    assert len(placed) == partitions
    assert all(len(set(each)) == len(each) == factor for each in placed)
    assert all(node in brokers for each in placed for node in each)
    leaders = Counter(dict.fromkeys(brokers, 0))
    leaders.update(each[0] for each in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(topic_ids, st.integers(2, 7))
def test_followers_of_one_leader_are_spread_over_all_others(topic_id: TopicId, nodes: int) -> None:
    """Over whole rounds, everybody follows everybody equally often."""
    brokers = [NodeId(n) for n in range(nodes)]
    placed = place(topic_id, range(nodes * (nodes - 1)), 2, map(Site, brokers))

    followed = Counter(placed)

    assert set(followed.values()) == {1}


@given(topic_ids, brokers, st.integers(1, 20), st.integers(1, 20))
def test_partitions_added_later_continue_the_round(
    topic_id: TopicId, brokers: list[NodeId], first: int, added: int
) -> None:
    whole = place(topic_id, range(first + added), 1, map(Site, brokers))
    parts = (
        place(topic_id, range(first), 1, map(Site, brokers)),
        place(topic_id, range(first, first + added), 1, map(Site, reversed(brokers))),
    )

    assert parts[0] + parts[1] == whole


def test_small_topics_do_not_all_begin_on_the_first_broker() -> None:
    brokers = [NodeId(n) for n in (1, 2, 3)]
    ids = [TopicId(UUID(int=n * 7919)) for n in range(60)]
    starts = Counter(place(topic_id, range(1), 1, map(Site, brokers))[0][0] for topic_id in ids)

    assert set(starts) == set(brokers)


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactorError, match=r"factor 3 .* 1 registered"):
        place(TopicId(UUID(int=1)), range(1), 3, [Site(NodeId(1))])


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ([[1], []], "no broker"),
        ([[1, 1]], "twice"),
        ([[1, 7]], "broker 7 is not registered"),
        ([[1, 2], [1]], "1 replicas where the others have 2"),
    ],
)
def test_a_manual_assignment_that_cannot_be_is_refused(
    replicas: list[list[NodeId]], problem: str
) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match=problem):
        check_assignment(replicas, [NodeId(1), NodeId(2)])


def test_a_manual_assignment_is_obeyed() -> None:
    nodes = [NodeId(1), NodeId(2)]

    assert check_assignment([[NodeId(2), NodeId(1)]], nodes) == ((2, 1),)
    with pytest.raises(InvalidReplicaAssignmentError):
        check_assignment([[NodeId(2), NodeId(1)]], nodes, factor=1)


# --- racks and machines ---------------------------------------------------------------------------

racks = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from(["m", "n", "o", None])),
    min_size=1,
    max_size=9,
)


@given(topic_ids, racks, st.integers(1, 30), st.data())
def test_replicas_are_on_different_machines(
    topic_id: TopicId,
    where: list[tuple[str | None, str | None]],
    partitions: int,
    data: st.DataObject,
) -> None:
    sites = [Site(NodeId(n), None, machine) for n, (_, machine) in enumerate(where)]
    machines = {site.node: machine_of(site) for site in sites}
    factor = data.draw(st.integers(1, len({*machines.values()})))
    placed = place(topic_id, range(partitions), factor, sites)

    assert all(len({machines[node] for node in each}) == factor for each in placed)


@given(topic_ids, racks, st.integers(1, 30), st.data())
def test_replicas_are_on_as_many_racks_as_can_be(
    topic_id: TopicId,
    where: list[tuple[str | None, str | None]],
    partitions: int,
    data: st.DataObject,
) -> None:
    sites = [Site(NodeId(n), rack) for n, (rack, _) in enumerate(where)]
    rack_of = {site.node: site.rack for site in sites}
    factor = data.draw(st.integers(1, len(sites)))
    most = min(factor, len({*rack_of.values()}))
    placed = place(topic_id, range(partitions), factor, sites)

    assert all(len({rack_of[node] for node in each}) == most for each in placed)
    leaders = Counter(dict.fromkeys(rack_of, 0))
    leaders.update(each[0] for each in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(topic_ids)
def test_followers_are_spread_over_equal_racks(topic_id: TopicId) -> None:
    sites = [Site(NodeId(n), "left" if n < 3 else "right") for n in range(6)]
    placed = place(topic_id, range(60), 2, sites)
    followers = Counter(each[1] for each in placed)

    assert max(followers.values()) - min(followers.values()) <= 2


def test_two_brokers_on_one_machine_hold_no_two_replicas_unless_told() -> None:
    sites = [Site(NodeId(n), None, "laptop") for n in (1, 2)]

    with pytest.raises(InvalidReplicationFactorError, match=r"machines: 2 brokers run on 1"):
        place(TopicId(UUID(int=1)), range(1), 2, sites)
    (placed,) = place(TopicId(UUID(int=1)), range(1), 2, sites, share_machines=True)
    assert sorted(placed) == [1, 2]

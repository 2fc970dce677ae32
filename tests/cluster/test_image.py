"""The image: what the store says, whichever way it came to say it."""

import random
import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.items import Change, Items
from tests.support.soak import count

from waystation.cluster import keys
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import UNBORN
from waystation.cluster.topics import TopicSpec, delete_topic
from waystation.cluster.values import (
    BrokerValue,
    ClusterValue,
    ConfigValue,
    ControllerValue,
    CounterValue,
    DrainValue,
    LeavingValue,
    PartitionValue,
    ReassignmentValue,
    TopicValue,
    encode,
)
from waystation.model.errors import MetadataFormatError, UnknownTopicError
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId

IDS = [TopicId(UUID(int=n)) for n in (1, 2, 3)]
NAMES = ["orders", "refunds"]

topic_ids = st.sampled_from(IDS)
replicas = st.lists(st.just((NodeId(1),)), min_size=1, max_size=3).map(tuple)
states = st.builds(
    PartitionValue,
    leader=st.none() | st.just(NodeId(1)),
    leader_epoch=st.integers(0, 5).map(LeaderEpoch),
    in_sync=st.just((NodeId(1),)),
)
items = st.one_of(
    st.tuples(
        st.sampled_from(NAMES).map(keys.topic),
        st.builds(TopicValue, id=topic_ids, replicas=replicas),
    ),
    st.tuples(st.builds(keys.partition, topic_ids, st.integers(0, 3)), states),
    st.tuples(st.builds(keys.partition, topic_ids, st.integers(0, 3)), states),
    st.tuples(
        st.sampled_from(NAMES).map(keys.topic_config),
        st.builds(ConfigValue, options=st.dictionaries(st.just("retention.ms"), st.just("1"))),
    ),
    st.tuples(
        st.sampled_from(["1", keys.EVERY_BROKER]).map(keys.broker_config),
        st.builds(ConfigValue, options=st.just({})),
    ),
    st.tuples(
        st.integers(1, 2).map(NodeId).map(keys.broker),
        st.just(BrokerValue(epoch=BrokerEpoch(1), host="h", port=1)),
    ),
    st.tuples(
        st.just(keys.CONTROLLER),
        st.builds(ControllerValue, node=st.just(NodeId(1)), epoch=st.just(1)),
    ),
    st.tuples(st.just(keys.PRODUCER_IDS), st.builds(CounterValue, next=st.integers(0, 9))),
    st.tuples(
        st.builds(keys.reassignment, topic_ids, st.integers(0, 1)),
        st.builds(ReassignmentValue, target=st.just((NodeId(2),)), origin=st.just((NodeId(1),))),
    ),
    st.tuples(
        st.integers(1, 2).map(NodeId).map(keys.leaving),
        st.builds(LeavingValue, epoch=st.integers(1, 2).map(BrokerEpoch)),
    ),
    st.tuples(st.integers(1, 2).map(NodeId).map(keys.drain), st.just(DrainValue())),
    st.tuples(st.just(keys.CLUSTER), st.just(ClusterValue(id="abc"))),
)
changes = st.lists(st.lists(st.tuples(items, st.booleans()), max_size=5), max_size=12)


def one_name_per_id(stored: dict[str, tuple[bytes, int]], key: str, value: object) -> bool:
    """Topic ids are never shared; the generator draws them from few, so it must be kept from it."""
    if not isinstance(value, TopicValue):
        return True
    wanted = str(value.id).encode()
    return not any(wanted in v for k, (v, _) in stored.items() if k[:7] == "topics/" and k != key)


@given(changes)
def test_an_image_grown_by_changes_is_the_image_of_the_items(changes: list) -> None:
    """Topics, states, options and brokers come and go in any order and any grouping."""
    stored: dict[str, tuple[bytes, int]] = {}
    image = ClusterImage.from_items({}, 0)
    for revision, group in enumerate(changes, 1):
        puts, deletes = {}, []
        for (key, value), deleting in group:
            if deleting and key in stored and key not in puts:
                deletes.append(key)
                del stored[key]
            elif not deleting and key not in deletes and one_name_per_id(stored, key, value):
                puts[key] = stored[key] = (encode(value), revision)
        image = image.apply(Change(revision, puts, tuple(deletes)))

        assert image == ClusterImage.from_items(stored, revision)


@given(changes)
def test_a_topic_exists_exactly_while_its_key_does(changes: list) -> None:
    stored: dict[str, tuple[bytes, int]] = {}
    for revision, group in enumerate(changes, 1):
        for (key, value), _ in group:
            if one_name_per_id(stored, key, value):
                stored[key] = (encode(value), revision)
    image = ClusterImage.from_items(stored, 1)

    assert {keys.topic(name) for name in image.topics} == {k for k in stored if k[:7] == "topics/"}
    assert {topic.id for topic in image.topics.values()} == set(image.topics_by_id)
    shown = {
        keys.partition(topic.id, n)
        for topic in image.topics.values()
        for n, partition in enumerate(topic.partitions)
        if partition.version
    }
    stray = {keys.partition(topic, n) for topic, some in image.strays.items() for n in some}
    assert not shown & stray
    assert shown | stray == {key for key in stored if key.startswith("partitions/")}


def test_one_change_among_a_thousand_topics_shares_all_the_others() -> None:
    world = Items()
    world.join(1)
    world.create(*(TopicSpec(f"topic-{n}", 5) for n in range(1_000)))
    before = world.image
    world.create(TopicSpec("one-more", 5))
    world.commit(delete_topic(world.image.topic("topic-7")))

    after = world.image

    assert len(after.topics) == 1_000
    kept = [name for name in before.topics if name != "topic-7"]
    assert all(before.topics[name] is after.topics[name] for name in kept)


def test_applying_costs_a_change_not_a_cluster() -> None:
    """One new topic in a cluster of a thousand is far cheaper than reading them all."""
    world = Items()
    world.join(1)
    world.create(*(TopicSpec(f"topic-{n}", 5) for n in range(count(1_000, 10_000))))
    began = time.perf_counter()
    ClusterImage.from_items(world.items, world.image.revision)
    whole_s = time.perf_counter() - began
    steps = []
    for n in range(5):
        value = TopicValue(id=TopicId(UUID(int=10**30 + n)), replicas=((NodeId(1),),))
        puts = {keys.topic(f"new-{n}"): (encode(value), 10**9)}
        began = time.perf_counter()
        world.image.apply(Change(10**9 + n, puts, ()))
        steps.append(time.perf_counter() - began)

    assert min(steps) < whole_s / 20


def test_a_change_seen_before_changes_nothing() -> None:
    world = Items()
    world.join(1)
    image = world.image

    assert image.apply(Change(image.revision, {keys.CLUSTER: (b"garbage", 1)}, ())) is image


def test_keys_of_kinds_unknown_here_are_left_alone() -> None:
    image = ClusterImage.from_items({"users/alice": (b"?", 1), "topics/a/b": (b"?", 1)}, 1)

    assert image == ClusterImage(revision=1)


@pytest.mark.parametrize(
    "key", ["partitions/short/0", "partitions/AAAAAAAAAAAAAAAAAAAAAQ/one", "brokers/-1", "topics/a"]
)
def test_an_unreadable_item_is_named(key: str) -> None:
    state = PartitionValue(leader=None, leader_epoch=LeaderEpoch(0), in_sync=())

    with pytest.raises(MetadataFormatError, match=key):
        ClusterImage.from_items({key: (encode(state), 1)}, 1)


def test_a_partition_without_a_state_has_no_leader() -> None:
    value = TopicValue(id=IDS[0], replicas=((NodeId(1),),))
    image = ClusterImage.from_items({keys.topic("orders"): (encode(value), 1)}, 1)

    assert image.topic("orders").partitions == (UNBORN._replace(replicas=(NodeId(1),)),)


def test_a_topic_made_anew_has_nothing_of_its_namesake() -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders", 3, options={"retention.ms": "5"}))
    old = world.image.topic("orders")
    world.commit(delete_topic(old))
    world.create(TopicSpec("orders", 1))

    new = world.image.topic("orders")

    assert new.id != old.id
    assert len(new.partitions) == 1
    assert world.image.topic_options("orders").options == {}
    assert old.id not in world.image.topics_by_id
    assert world.image.topics_by_id[new.id] is new


def test_an_unknown_topic_is_an_error_with_its_name() -> None:
    with pytest.raises(UnknownTopicError, match="nowhere"):
        ClusterImage().topic("nowhere")


def test_internal_topics_are_known_by_name() -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("__consumer_offsets"), TopicSpec("__mine"))

    assert world.image.topic("__consumer_offsets").internal
    assert not world.image.topic("__mine").internal


@pytest.mark.parametrize("seed", range(20))
def test_any_grouping_of_changes_ends_in_the_same_image(seed: int) -> None:
    """Watches may coalesce: the last states, told in fewer changes, give the same image."""
    chance = random.Random(seed)
    world = Items()
    world.join(1, 2)
    told = world.image
    behind: dict[str, tuple[bytes, int] | None] = {}
    for n in range(60):
        before = dict(world.items)
        name = f"t{chance.randrange(5)}"
        if name in world.image.topics and chance.random() < 0.5:
            world.commit(delete_topic(world.image.topic(name)))
        else:
            world.create(TopicSpec(name, chance.randrange(1, 4)))
        for key in {*before, *world.items}:
            if before.get(key) != world.items.get(key):
                behind[key] = world.items.get(key)
        if chance.random() < 0.3 or n == 59:
            puts = {key: item for key, item in behind.items() if item}
            deletes = tuple(key for key, item in behind.items() if not item)
            told = told.apply(Change(world.image.revision, puts, deletes))
            behind = {}

            assert told == world.image

"""Topics are made, grown and deleted by Kafka's rules."""

import pytest
from tests.cluster.items import Items, new_id, plans_of

from waystation.cluster import keys
from waystation.cluster.changes import Changes, in_batches
from waystation.cluster.image import ClusterImage
from waystation.cluster.topics import (
    PARTITIONS_MAX,
    TopicDefaults,
    TopicPlan,
    TopicSpec,
    add_partitions,
    create_topics,
    delete_topic,
    sweep,
    sweep_old,
)
from waystation.cluster.values import ConfigValue, encode
from waystation.model.errors import (
    ErrorCode,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    UnknownTopicError,
    WaystationError,
)
from waystation.model.ids import NodeId


@pytest.fixture
def world() -> Items:
    world = Items()
    world.join(1, 2, 3)
    return world


def decide(world: Items, *specs: TopicSpec) -> list[TopicPlan | WaystationError]:
    outcomes = create_topics(world.image, specs, TopicDefaults(4, 2), new_id)
    return [outcomes[spec.name] for spec in specs]


def refusal(world: Items, spec: TopicSpec) -> WaystationError:
    (outcome,) = decide(world, spec)
    assert isinstance(outcome, WaystationError), outcome
    return outcome


def test_a_topic_is_made_as_asked(world: Items) -> None:
    (plan,) = world.create(TopicSpec("orders", 6, 3, options={"retention.ms": "1000"})).values()

    topic = world.image.topic("orders")
    assert isinstance(plan, TopicPlan)
    assert (plan.partitions, plan.replication_factor) == (6, 3)
    assert topic.id == plan.id
    assert topic.assignment == plan.assignment
    assert world.image.topic_options("orders").options == {"retention.ms": "1000"}


def test_new_partitions_are_led_by_their_first_replica_with_all_in_sync(world: Items) -> None:
    world.create(TopicSpec("orders", 6, 3))

    for partition in world.image.topic("orders").partitions:
        assert partition.leader == partition.replicas[0]
        assert partition.in_sync == partition.replicas
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_what_is_not_said_comes_from_the_defaults(world: Items) -> None:
    (plan,) = decide(world, TopicSpec("orders"))

    assert isinstance(plan, TopicPlan)
    assert (plan.partitions, plan.replication_factor) == (4, 2)


def test_a_manual_assignment_is_obeyed_in_order_of_partitions(world: Items) -> None:
    by_hand = [(1, [NodeId(3), NodeId(1)]), (0, [NodeId(2), NodeId(3)])]
    world.create(TopicSpec("orders", assignments=by_hand))

    assert world.image.topic("orders").assignment == ((2, 3), (3, 1))


@pytest.mark.parametrize(
    ("spec", "code", "problem"),
    [
        (TopicSpec(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        (TopicSpec(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "may not be called"),
        (TopicSpec("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "illegal"),
        (TopicSpec("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "250"),
        (TopicSpec("there.is"), ErrorCode.TOPIC_ALREADY_EXISTS, "exists"),
        (TopicSpec("there_is"), ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with 'there.is'"),
        (TopicSpec("t", 0), ErrorCode.INVALID_PARTITIONS, "0 partitions"),
        (TopicSpec("t", -2), ErrorCode.INVALID_PARTITIONS, "-2 partitions"),
        (TopicSpec("t", PARTITIONS_MAX + 1), ErrorCode.POLICY_VIOLATION, "at most"),
        (TopicSpec("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "at least 1"),
        (TopicSpec("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "at least 1"),
        (TopicSpec("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "3 registered"),
        (TopicSpec("t", 1, -1, [(0, [1])]), ErrorCode.INVALID_REQUEST, "must both be -1"),
        (TopicSpec("t", -1, 1, [(0, [1])]), ErrorCode.INVALID_REQUEST, "must both be -1"),
        (TopicSpec("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "0 to 0"),
        (
            TopicSpec("t", assignments=[(0, [1]), (0, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "once each",
        ),
        (
            TopicSpec("t", assignments=[(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "broker 9 is not registered",
        ),
        (
            TopicSpec("t", options={"retention.ns": "1"}),
            ErrorCode.INVALID_CONFIG,
            "did you mean retention.ms",
        ),
        (
            TopicSpec("t", options={"retention.ms": "soon"}),
            ErrorCode.INVALID_CONFIG,
            "must be a whole number",
        ),
        (TopicSpec("t", options={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "no value"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(
    world: Items, spec: TopicSpec, code: ErrorCode, problem: str
) -> None:
    world.create(TopicSpec("there.is"))
    error = refusal(world, spec)

    assert error.code == code
    assert problem in str(error)


def test_one_bad_topic_spoils_no_other(world: Items) -> None:
    outcomes = world.create(TopicSpec("good"), TopicSpec("bad topic"), TopicSpec("fine"))

    assert list(world.image.topics) == ["good", "fine"]
    assert isinstance(outcomes["bad topic"], WaystationError)


def test_a_name_asked_for_twice_in_one_request_is_refused(world: Items) -> None:
    outcomes = world.create(TopicSpec("twice"), TopicSpec("twice", 3), TopicSpec("once"))

    assert isinstance(outcomes["twice"], WaystationError)
    assert list(world.image.topics) == ["once"]


def test_names_that_collide_within_one_request_are_refused(world: Items) -> None:
    outcomes = world.create(TopicSpec("a.b"), TopicSpec("a_b"))

    assert isinstance(outcomes["a.b"], TopicPlan)
    assert isinstance(outcomes["a_b"], WaystationError)


def test_of_two_who_create_a_topic_at_once_one_wins(world: Items) -> None:
    first = create_topics(world.image, [TopicSpec("orders", 1)], TopicDefaults(), new_id)
    second = create_topics(world.image, [TopicSpec("orders", 9)], TopicDefaults(), new_id)

    assert world.commit(*plans_of(first.values()))
    assert not world.commit(*plans_of(second.values()))
    assert len(world.image.topic("orders").partitions) == 1
    assert world.image.strays == {}


def test_a_thousand_small_topics_take_a_few_transactions(world: Items) -> None:
    before = world.transactions
    world.create(*(TopicSpec(f"t{n}") for n in range(1_000)))

    assert len(world.image.topics) == 1_000
    assert world.transactions - before == 20


def test_a_topic_too_large_for_one_transaction_appears_at_once_and_whole(world: Items) -> None:
    outcomes = create_topics(world.image, [TopicSpec("big", 1_000, 3)], TopicDefaults(), new_id)
    seen = []
    for txn in in_batches(plans_of(outcomes.values())):
        assert world.txn(txn)
        seen.append("big" in world.image.topics)

    assert seen == [False] * (len(seen) - 1) + [True]
    assert all(each.leader_epoch == 0 for each in world.image.topic("big").partitions)
    assert world.image.strays == {}


def test_a_crash_while_a_large_topic_is_made_leaves_litter_that_is_swept(world: Items) -> None:
    options = {"retention.ms": "1"}
    outcomes = create_topics(
        world.image, [TopicSpec("big", 300, options=options)], TopicDefaults(), new_id
    )
    for txn in list(in_batches(plans_of(outcomes.values())))[:-1]:
        assert world.txn(txn)

    assert world.image.topics == {}
    assert world.image.strays

    assert world.commit(sweep(world.image))
    assert world.image.strays == {}
    assert not any(key.startswith(("partitions/", "configs/")) for key in world.items)


@pytest.mark.parametrize("partitions", [1, 99, 100, 101, 500])
def test_a_deleted_topic_leaves_nothing(world: Items, partitions: int) -> None:
    before = set(world.items)
    world.create(TopicSpec("orders", partitions, options={"retention.ms": "1"}))

    assert world.commit(delete_topic(world.image.topic("orders")))
    assert set(world.items) == before
    assert world.image.strays == {}


def test_deleting_is_void_once_somebody_else_has(world: Items) -> None:
    world.create(TopicSpec("orders"))
    stale = delete_topic(world.image.topic("orders"))
    world.commit(delete_topic(world.image.topic("orders")))
    world.create(TopicSpec("orders"))

    assert not world.commit(stale)
    assert "orders" in world.image.topics


def test_partitions_are_added_and_the_old_ones_stay_as_they_are(world: Items) -> None:
    world.create(TopicSpec("orders", 2, 2))
    before = world.image.topic("orders")

    assert world.commit(add_partitions(world.image, "orders", 150))

    after = world.image.topic("orders")
    assert after.id == before.id
    assert after.partitions[:2] == before.partitions
    assert len(after.partitions) == 150
    assert {len(each.replicas) for each in after.partitions} == {2}
    assert {each.leader_epoch for each in after.partitions} == {0}


def test_added_partitions_may_be_assigned_by_hand(world: Items) -> None:
    world.create(TopicSpec("orders", 1, 1))

    assert world.commit(add_partitions(world.image, "orders", 3, [[NodeId(3)], [NodeId(1)]]))
    assert world.image.topic("orders").assignment[1:] == ((3,), (1,))


def test_partitions_never_become_fewer(world: Items) -> None:
    world.create(TopicSpec("orders", 3))

    for number in (3, 2, 0, -1):
        with pytest.raises(InvalidPartitionsError, match="has 3 partitions already"):
            add_partitions(world.image, "orders", number)


def test_partitions_cannot_be_added_to_what_is_not_there(world: Items) -> None:
    with pytest.raises(UnknownTopicError):
        add_partitions(world.image, "orders", 3)


@pytest.mark.parametrize(
    "by_hand", [[], [[1]], [[1], [2], [3]], [[1], [9]], [[1], [1, 2]], [[1], []]]
)
def test_an_assignment_that_does_not_fit_is_refused(world: Items, by_hand: list) -> None:
    world.create(TopicSpec("orders", 1, 1))

    with pytest.raises(InvalidReplicaAssignmentError):
        add_partitions(world.image, "orders", 3, by_hand)


def test_adding_partitions_after_a_crash_replaces_what_it_left(world: Items) -> None:
    world.create(TopicSpec("orders", 1))
    crashed = list(in_batches([add_partitions(world.image, "orders", 200)]))
    assert world.txn(crashed[0])
    assert len(world.image.strays[world.image.topic("orders").id]) > 0

    assert world.commit(add_partitions(world.image, "orders", 150))
    assert len(world.image.topic("orders").partitions) == 150
    assert world.image.strays == {}


def test_a_new_topic_never_takes_over_options_that_a_crash_left(world: Items) -> None:
    world.create(TopicSpec("orders", options={"retention.ms": "1"}))
    left = world.items[keys.topic_config("orders")]
    world.commit(delete_topic(world.image.topic("orders")))
    world.items[keys.topic_config("orders")] = left
    world.image = world.image.from_items(world.items, world.image.revision)

    world.create(TopicSpec("orders"))

    assert world.image.topic_options("orders").options == {}


def test_what_may_be_a_topic_in_the_making_is_swept_only_when_it_is_old() -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders", 2))
    topic = world.image.topic("orders")
    world.commit(Changes(deletes=[keys.topic("orders")]))
    young = world.image

    assert sweep_old(young, ClusterImage()) == []
    assert world.commit(*sweep_old(world.image, young))
    assert not world.image.strays
    assert keys.partition(topic.id, 0) not in world.items


def test_what_was_left_over_is_not_swept_once_it_was_written_again() -> None:
    world = Items()
    world.join(1)
    world.commit(Changes(puts={keys.topic_config("orders"): encode(ConfigValue({}))}))
    early = world.image
    decided = sweep_old(world.image, early)
    world.create(TopicSpec("orders", 1, 1, options={"retention.ms": "5"}))

    assert not world.commit(*decided)
    assert world.image.topic_options("orders").options == {"retention.ms": "5"}

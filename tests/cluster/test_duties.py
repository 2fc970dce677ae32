"""Duties: a broker that does them holds what the last image says."""

import random

import pytest
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.configs import Alteration, Operation, alter_broker, alter_topic
from waystation.cluster.duties import Duty, duties
from waystation.cluster.elections import elect
from waystation.cluster.image import ClusterImage
from waystation.cluster.reassignment import reassign
from waystation.cluster.topics import TopicSpec, add_partitions, delete_topic
from waystation.model.ids import NodeId, TopicId

ONE = NodeId(1)


def test_a_new_topic_is_to_be_held_by_its_replicas_only() -> None:
    world = Items()
    world.join(1, 2)
    before = world.image
    world.create(TopicSpec("orders", 4, 1))

    mine, theirs = (duties(before, world.image, NodeId(n)).hold for n in (1, 2))

    assert len(mine) == len(theirs) == 2
    assert {duty.name.partition for duty in mine + theirs} == {0, 1, 2, 3}
    assert all(duty.state.leader == 1 for duty in mine)


def test_a_deleted_topic_is_to_be_dropped() -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders", 2))
    before = world.image
    world.commit(delete_topic(before.topic("orders")))

    asked = duties(before, world.image, ONE)

    assert [str(duty.name) for duty in asked.drop] == ["orders-0", "orders-1"]
    assert asked.hold == ()


def test_options_of_a_topic_ask_only_for_that_topic() -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders"), TopicSpec("refunds"))
    before = world.image
    alteration = [Alteration("retention.ms", Operation.SET, "1")]
    world.commit(alter_topic(before, "orders", alteration))

    assert duties(before, world.image, ONE) == ((), (), ("orders",))


@pytest.mark.parametrize("name", [keys.EVERY_BROKER, "1"])
def test_options_of_the_broker_ask_for_every_topic(name: str) -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders"), TopicSpec("refunds"))
    before = world.image
    world.commit(
        alter_broker(before, name, [Alteration("log.retention.ms", Operation.SET, "1")], ())
    )

    assert duties(before, world.image, ONE).reconfigure == ("orders", "refunds")
    assert duties(before, world.image, NodeId(2)).reconfigure == (
        ("orders", "refunds") if name == keys.EVERY_BROKER else ()
    )


def test_options_count_anew_once_fewer_replicas_are_asked_for() -> None:
    """Two of three must be in sync by default; of one that is left, only that one."""
    world = Items()
    world.join(1, 2, 3)
    world.create(TopicSpec("orders", 1, 3))
    before = world.image
    leader = before.topic("orders").partitions[0].replicas[0]
    world.commit(reassign(before, "orders", 0, [leader]))

    assert duties(before, world.image, leader).reconfigure == ("orders",)


def test_nothing_is_asked_where_nothing_changed() -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders", 5))

    assert duties(world.image, world.image, ONE) == ((), (), ())


@pytest.mark.parametrize("seed", range(30))
def test_who_does_every_duty_holds_what_the_image_says(seed: int) -> None:
    """Topics come, grow, go and return, brokers die; images are skipped at random."""
    chance = random.Random(seed)
    world = Items()
    world.join(1, 2, 3)
    seen = ClusterImage()
    held: dict[tuple[str, int], Duty] = {}
    directories: dict[tuple[str, int], TopicId] = {}
    for _ in range(80):
        name = f"t{chance.randrange(4)}"
        there = name in world.image.topics
        match chance.randrange(4):
            case 0 if there:
                world.commit(delete_topic(world.image.topic(name)))
            case 1 if there:
                count = len(world.image.topic(name).partitions)
                world.commit(add_partitions(world.image, name, count + chance.randrange(1, 4)))
            case 2:
                live = chance.sample([1, 2, 3], 2)
                world.commit(*elect(world.image, [NodeId(node) for node in live]))
            case _ if not there:
                world.create(TopicSpec(name, chance.randrange(1, 5), chance.randrange(1, 4)))
        if chance.random() < 0.4:
            asked = duties(seen, world.image, ONE)
            seen = world.image
            for duty in asked.drop:
                assert directories.pop(duty.name) == duty.topic_id
                del held[duty.name]
            for duty in asked.hold:
                assert directories.setdefault(duty.name, duty.topic_id) == duty.topic_id
                held[duty.name] = duty

            wanted = {
                (topic.name, number): state
                for topic in seen.topics.values()
                for number, state in enumerate(topic.partitions)
                if ONE in state.replicas
            }
            assert {key: duty.state for key, duty in held.items()} == wanted
    world.commit(Changes())

"""Which value is in force: the nearest one that parses."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.duties import duties
from waystation.cluster.effective import (
    Explained,
    Source,
    broker_settings,
    explain_broker,
    explain_topic,
    topic_settings,
)
from waystation.cluster.reassignment import reassign
from waystation.cluster.topics import TopicSpec
from waystation.cluster.values import ConfigValue, TopicValue, encode
from waystation.model.ids import NodeId
from waystation.model.settings import option, options_of
from waystation.model.topics import TopicSettings

ONE = NodeId(1)
STARTED_WITH = TopicSettings(retention_ms=40)
TEXTS = {"log.retention.ms": "40"}


def world_with(topic: dict[str, str], broker: dict[str, str], every: dict[str, str]) -> Items:
    """What is stored, whether or not it would be accepted today."""
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders"))
    for key, options in [
        (keys.topic_config("orders"), topic),
        (keys.broker_config("1"), broker),
        (keys.broker_config(keys.EVERY_BROKER), every),
    ]:
        world.commit(Changes(puts={key: encode(ConfigValue(options=options))}))
    return world


def retention(explained: list[Explained]) -> Explained:
    (found,) = [each for each in explained if each.option.field == "retention_ms"]
    return found


def test_a_topic_without_options_has_what_the_broker_was_started_with() -> None:
    world = world_with({}, {}, {})

    assert topic_settings(world.image, "orders", ONE, STARTED_WITH) is STARTED_WITH
    assert retention(explain_topic(world.image, "orders", ONE, TEXTS)).source == Source.STATIC


@given(st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_the_nearest_value_wins_and_all_are_explained(
    by_topic: bool, by_broker: bool, by_all: bool, by_start: bool
) -> None:
    world = world_with(
        {"retention.ms": "10"} if by_topic else {},
        {"log.retention.ms": "20"} if by_broker else {},
        {"log.retention.ms": "30"} if by_all else {},
    )
    static = STARTED_WITH if by_start else TopicSettings()
    layers = [
        (by_topic, "retention.ms", "10", Source.TOPIC),
        (by_broker, "log.retention.ms", "20", Source.BROKER),
        (by_all, "log.retention.ms", "30", Source.EVERY_BROKER),
        (by_start, "log.retention.ms", "40", Source.STATIC),
        (True, "log.retention.ms", str(TopicSettings().retention_ms), Source.DEFAULT),
    ]
    given_by = [layer[1:] for layer in layers if layer[0]]

    why = retention(explain_topic(world.image, "orders", ONE, TEXTS if by_start else {}))
    settings = topic_settings(world.image, "orders", ONE, static)

    assert list(why.given) == given_by
    assert (why.name, why.value, why.source) == ("retention.ms", *given_by[0][1:])
    assert str(settings.retention_ms) == why.value


def test_a_stored_value_that_no_longer_parses_is_as_if_it_were_not_there() -> None:
    world = world_with(
        {"retention.ms": "forever", "gone.option": "1", "flush.ms": "7"},
        {"log.retention.ms": "soon"},
        {},
    )
    settings = topic_settings(world.image, "orders", ONE, STARTED_WITH)

    assert settings.retention_ms == 40
    assert settings.flush_ms == 7
    assert retention(explain_topic(world.image, "orders", ONE, TEXTS)).source == Source.STATIC


def test_two_must_be_in_sync_where_every_partition_has_three_replicas() -> None:
    """Those that are on their way do not count: acks=all would wait for them."""
    world = Items()
    world.join(1, 2, 3)
    world.create(TopicSpec("orders", 2, 1))

    def minimum() -> int:
        return topic_settings(world.image, "orders", ONE, STARTED_WITH).min_insync_replicas

    def rewrite(*replicas: tuple[NodeId, ...]) -> None:
        topic = world.image.topic("orders")
        value = encode(TopicValue(id=topic.id, replicas=replicas))
        world.commit(Changes(puts={keys.topic("orders"): value}))

    everywhere = (ONE, NodeId(2), NodeId(3))
    rewrite(everywhere, (ONE,))
    assert minimum() == 1
    world.commit(reassign(world.image, "orders", 1, everywhere))
    rewrite(everywhere, everywhere)
    assert minimum() == 1
    key = keys.reassignment(world.image.topic("orders").id, 1)
    before = world.image
    world.commit(Changes(deletes=[key]))
    rewrite(everywhere, everywhere)
    assert minimum() == 2
    assert duties(before, world.image, ONE).reconfigure == ("orders",)
    rewrite((ONE,), everywhere)
    assert minimum() == 1


def test_another_brokers_options_do_not_count_here() -> None:
    world = world_with({}, {"log.retention.ms": "20"}, {})

    assert topic_settings(world.image, "orders", NodeId(2), STARTED_WITH).retention_ms == 40


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeBroker:
    """A broker's options, as the broker itself would hand them in."""

    threads: int = option(4, at_least=1, live=True, doc="How many.", kafka="num.threads")


def test_a_brokers_options_are_in_force_and_explained_by_their_broker_level_names() -> None:
    world = world_with({}, {"num.threads": "8"}, {"num.threads": "6"})
    explained = explain_broker(world.image, ONE, {"num.threads": "5"}, options_of(SomeBroker))
    by_name = {each.name: each for each in explained}

    assert broker_settings(world.image, ONE, SomeBroker(threads=5)) == SomeBroker(threads=8)
    assert [each.value for each in by_name["num.threads"].given] == ["8", "6", "5", "4"]
    assert by_name["log.retention.ms"].source == Source.DEFAULT
    assert len(explained) == 1 + len(options_of(TopicSettings))

"""Which value is in force: the nearest one that parses."""

from dataclasses import dataclass

import pytest
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
from waystation.model.settings import BALANCED, PROFILES, option, options_of, parse_settings
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


WORDS = st.sampled_from([None, "latency", "throughput", "balanced"])
NUMBERS = st.sampled_from([None, "0", "7"])
FLUSH = {"balanced": "-1", "latency": "0", "throughput": "20"}
FETCH = {**FLUSH, "throughput": "10"}


def _some(**texts: str | None) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in texts.items() if text is not None}


@given(st.lists(st.tuples(WORDS, NUMBERS), min_size=4, max_size=4))
def test_a_profile_decides_where_nobody_has_decided_himself(
    layers: list[tuple[str | None, str | None]],
) -> None:
    texts = [_some(profile=word, flush_linger_ms=number) for word, number in layers]
    world = world_with(*texts[:3])
    started_with = parse_settings(TopicSettings, texts[3])
    settings = topic_settings(world.image, "orders", ONE, started_with, texts[3])
    explained = explain_topic(world.image, "orders", ONE, texts[3])
    by_name = {each.name: each for each in explained}
    profile = next((word for word, _ in layers if word), BALANCED)
    linger = next((number for _, number in layers if number), FLUSH[profile])

    assert (settings.profile, by_name["profile"].value) == (profile, profile)
    assert (str(settings.flush_linger_ms), by_name["flush.linger.ms"].value) == (linger, linger)
    assert str(settings.fetch_linger_ms) == by_name["fetch.linger.ms"].value == FETCH[profile]
    assert settings.durability == TopicSettings().durability


def test_what_a_profile_gives_is_a_default_that_says_who_it_is_from() -> None:
    world = world_with({"profile": "latency"}, {}, {})
    explained = explain_topic(world.image, "orders", ONE, {"profile": "throughput"})
    by_name = {each.name: each for each in explained}

    assert by_name["flush.linger.ms"].given == (
        ("profile", "0", Source.DEFAULT),
        ("flush.linger.ms", "-1", Source.DEFAULT),
    )
    assert [tuple(each) for each in by_name["profile"].given] == [
        ("profile", "latency", Source.TOPIC),
        ("profile", "throughput", Source.STATIC),
        ("profile", "balanced", Source.DEFAULT),
    ]


@pytest.mark.parametrize("profile", PROFILES)
def test_what_the_cluster_keeps_for_itself_has_no_profile_but_its_own(profile: str) -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("__consumer_offsets"))
    started_with = TopicSettings(profile=profile)
    texts = {"profile": profile}

    def now_and_why() -> tuple[str, int, str, str]:
        settings = topic_settings(world.image, "__consumer_offsets", ONE, started_with, texts)
        explained = explain_topic(world.image, "__consumer_offsets", ONE, texts)
        why = {each.name: each.value for each in explained}
        lingers = settings.flush_linger_ms
        return settings.profile, lingers, why["profile"], why["flush.linger.ms"]

    assert now_and_why() == ("balanced", -1, "balanced", "-1")
    value = encode(ConfigValue(options={"profile": "throughput"}))
    world.commit(Changes(puts={keys.topic_config("__consumer_offsets"): value}))
    assert now_and_why() == ("throughput", 20, "throughput", "20")


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeBroker:
    """A broker's options, as the broker itself would hand them in."""

    threads: int = option(4, at_least=1, live=True, doc="How many.", kafka="num.threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """Options of a broker that have a default for a profile."""

    nap_ms: int = option(1, throughput=3, live=True, doc="How long.")


def test_a_brokers_own_options_follow_the_profile_it_was_started_with() -> None:
    world = world_with({}, {"profile": "latency"}, {})
    explained = explain_broker(world.image, ONE, {"profile": "throughput"}, options_of(Sockets))
    by_name = {each.name: each for each in explained}

    assert by_name["nap.ms"].given == (
        ("profile", "3", Source.DEFAULT),
        ("nap.ms", "1", Source.DEFAULT),
    )
    assert by_name["flush.linger.ms"].value == "0"
    assert by_name["profile"].source == Source.BROKER


def test_a_brokers_options_are_in_force_and_explained_by_their_broker_level_names() -> None:
    world = world_with({}, {"num.threads": "8"}, {"num.threads": "6"})
    explained = explain_broker(world.image, ONE, {"num.threads": "5"}, options_of(SomeBroker))
    by_name = {each.name: each for each in explained}

    assert broker_settings(world.image, ONE, SomeBroker(threads=5)) == SomeBroker(threads=8)
    assert [each.value for each in by_name["num.threads"].given] == ["8", "6", "5", "4"]
    assert by_name["log.retention.ms"].source == Source.DEFAULT
    assert len(explained) == 1 + len(options_of(TopicSettings))

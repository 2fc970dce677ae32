"""Options changed while the cluster runs: checked whole, or not changed at all."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.configs import (
    Alteration,
    Operation,
    alter_broker,
    alter_topic,
    replace_broker,
    replace_topic,
)
from waystation.cluster.topics import TopicSpec, delete_topic
from waystation.model.errors import InvalidConfigError, InvalidRequestError, UnknownTopicError
from waystation.model.settings import option, options_of

SET, DELETE, APPEND, SUBTRACT = Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeBroker:
    """A broker's options, as the broker itself would hand them in."""

    threads: int = option(4, at_least=1, live=True, doc="How many.", kafka="num.threads")
    hosts: tuple[str, ...] = option(("a", "b"), live=True, doc="A list.")
    colours: tuple[str, ...] = option((), choices=("red", "blue"), live=True, doc="A choice.")
    directory: str = option("./data", doc="Needs a restart.")


BROKER = options_of(SomeBroker)


@pytest.fixture
def world() -> Items:
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders", options={"retention.ms": "1000", "segment.ms": "500"}))
    return world


def own(world: Items) -> dict[str, str]:
    return dict(world.image.topic_options("orders").options)


def all_brokers(world: Items) -> dict[str, str]:
    return dict(world.image.broker_options().options)


def alter_all(world: Items, *alterations: Alteration) -> None:
    assert world.commit(alter_broker(world.image, keys.EVERY_BROKER, alterations, BROKER))


def test_altering_leaves_the_other_options(world: Items) -> None:
    alterations = [
        Alteration("retention.ms", SET, "2000"),
        Alteration("segment.ms", DELETE),
        Alteration("flush.ms", SET, "7"),
        Alteration("flush.messages", DELETE),
    ]

    assert world.commit(alter_topic(world.image, "orders", alterations))
    assert own(world) == {"retention.ms": "2000", "flush.ms": "7"}


def test_replacing_forgets_the_other_options(world: Items) -> None:
    assert world.commit(replace_topic(world.image, "orders", {"flush.ms": "7"}))
    assert own(world) == {"flush.ms": "7"}


def test_options_that_are_all_gone_leave_no_item(world: Items) -> None:
    assert world.commit(replace_topic(world.image, "orders", {}))
    assert keys.topic_config("orders") not in world.items
    assert world.commit(replace_topic(world.image, "orders", {}))


@pytest.mark.parametrize(
    ("alteration", "problem"),
    [
        (Alteration("retention.minutes", SET, "1"), "unknown option"),
        (Alteration("retention.ms", SET, "long"), "whole number"),
        (Alteration("retention.ms", SET, "-2"), "at least -1"),
        (Alteration("durability", SET, "paper"), "one of disk, memory"),
        (Alteration("retention.ms", SET, None), "no value"),
        (Alteration("retention.ms", APPEND, "1"), "cannot APPEND to retention.ms"),
        (Alteration("retention.ms", SUBTRACT, "1"), "not a list"),
        (Alteration("no.such.list", APPEND, "1"), "unknown option"),
    ],
)
def test_a_wrong_alteration_is_refused_and_nothing_changes(
    world: Items, alteration: Alteration, problem: str
) -> None:
    fine = Alteration("flush.ms", SET, "7")

    with pytest.raises(InvalidConfigError, match=problem):
        alter_topic(world.image, "orders", [fine, alteration])


def test_lags_of_compaction_that_contradict_each_other_are_refused(world: Items) -> None:
    least = [Alteration("min.compaction.lag.ms", SET, "10")]
    assert world.commit(alter_topic(world.image, "orders", least))

    for most in ("9", "1"):
        with pytest.raises(InvalidConfigError, match=r"more than max.compaction.lag.ms"):
            alter_topic(world.image, "orders", [Alteration("max.compaction.lag.ms", SET, most)])
    with pytest.raises(InvalidConfigError, match=r"more than max.compaction.lag.ms"):
        replace_topic(
            world.image, "orders", {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}
        )
    alter_topic(world.image, "orders", [Alteration("max.compaction.lag.ms", SET, "10")])


def test_every_problem_is_told_at_once(world: Items) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        replace_topic(world.image, "orders", {"a": "1", "retention.ms": "x", "segment.ms": "0"})

    assert str(refused.value).count(";") == 2


def test_an_option_altered_twice_in_one_request_is_refused(world: Items) -> None:
    twice = [Alteration("flush.ms", SET, "1"), Alteration("flush.ms", DELETE)]

    with pytest.raises(InvalidRequestError, match=r"flush\.ms"):
        alter_topic(world.image, "orders", twice)


def test_options_of_a_topic_that_is_not_there_are_refused(world: Items) -> None:
    with pytest.raises(UnknownTopicError):
        alter_topic(world.image, "nowhere", [Alteration("no.such", SET, "1")])
    with pytest.raises(UnknownTopicError):
        replace_topic(world.image, "nowhere", {"no.such": "1"})


def test_altering_is_void_once_the_topic_is_deleted(world: Items) -> None:
    world.create(TopicSpec("plain"))
    changes = alter_topic(world.image, "plain", [Alteration("flush.ms", SET, "1")])
    world.commit(delete_topic(world.image.topic("plain")))

    assert not world.commit(changes)
    assert keys.topic_config("plain") not in world.items


def test_of_two_who_alter_at_once_neither_loses_its_change(world: Items) -> None:
    first = alter_topic(world.image, "orders", [Alteration("flush.ms", SET, "1")])
    second = alter_topic(world.image, "orders", [Alteration("flush.messages", SET, "1")])

    assert world.commit(first)
    assert not world.commit(second), "decided on options that are not there any more"


def test_items_are_appended_to_and_taken_from_a_list(world: Items) -> None:
    alter_all(world, Alteration("hosts", APPEND, "c, a ,d"))
    assert all_brokers(world) == {"hosts": "a,b,c,d"}, "the default counts, nothing comes twice"

    alter_all(world, Alteration("hosts", SUBTRACT, "a,c,x"))
    assert all_brokers(world) == {"hosts": "b,d"}


def test_what_is_appended_is_checked_too(world: Items) -> None:
    alter_all(world, Alteration("colours", APPEND, "red"))

    with pytest.raises(InvalidConfigError, match="one of red, blue"):
        alter_broker(world.image, "1", [Alteration("colours", APPEND, "green")], BROKER)


@given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from("abcde")))))
def test_a_list_has_each_item_once_whatever_is_appended(
    steps: list[tuple[bool, list[str]]],
) -> None:
    world = Items()
    items = ["a", "b"]
    for appending, edits in steps:
        alter_all(world, Alteration("hosts", APPEND if appending else SUBTRACT, ",".join(edits)))
        if appending:
            items += [item for item in dict.fromkeys(edits) if item not in items]
        else:
            items = [item for item in items if item not in edits]

        assert all_brokers(world)["hosts"] == ",".join(items)


def test_brokers_take_their_own_options_and_their_topics_defaults(world: Items) -> None:
    alter_all(world, Alteration("num.threads", SET, "8"), Alteration("log.retention.ms", SET, "5"))

    assert all_brokers(world) == {"num.threads": "8", "log.retention.ms": "5"}
    assert world.commit(replace_broker(world.image, "1", {"num.threads": "2"}, BROKER))
    assert world.image.broker_options("1").options == {"num.threads": "2"}


def test_an_option_that_needs_a_restart_is_refused(world: Items) -> None:
    with pytest.raises(InvalidRequestError, match="directory cannot change while"):
        alter_broker(world.image, "1", [Alteration("directory", SET, "/x")], BROKER)
    with pytest.raises(InvalidRequestError, match="restart"):
        replace_broker(world.image, "1", {"directory": "/x"}, BROKER)


def test_a_topics_name_for_an_option_is_not_a_brokers(world: Items) -> None:
    with pytest.raises(InvalidConfigError, match=r"did you mean .*log\.retention\.ms"):
        alter_broker(world.image, "1", [Alteration("retention.ms", SET, "1")], BROKER)

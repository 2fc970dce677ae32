"""Subscriptions by name and by expression, and topics that come, grow and go."""

import pytest

from tests.groups.consumers import Consumer, Server, a_join, partitions, settle
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.groups import targets
from waystation.groups.records import RegexForgotten, RegexResolved
from waystation.model.errors import InvalidRegexError


@pytest.fixture
def server() -> Server:
    return Server()


def test_new_partitions_are_shared_out_at_once(server: Server) -> None:
    server.create("orders", 2)
    a, b = Consumer(server, "a", "orders"), Consumer(server, "b", "orders")
    settle(a, b)
    held = a.reads, b.reads

    server.grow("orders", 4)
    settle(a, b)

    assert (len(a.reads), len(b.reads)) == (2, 2)
    assert a.reads >= held[0]
    assert b.reads >= held[1]


def test_a_topic_may_be_subscribed_to_before_it_exists(server: Server) -> None:
    a = Consumer(server, "a", "orders")
    assert a.reads == set()

    orders = server.create("orders", 2)
    a.beat()

    assert a.owned == partitions(orders, 0, 1)


def test_a_topic_that_goes_is_given_up(server: Server) -> None:
    server.create("orders", 2)
    events = server.create("events", 1)
    a = Consumer(server, "a", "orders", "events")

    server.drop("orders")
    settle(a)

    assert a.owned == partitions(events, 0)


def test_a_topic_made_anew_under_its_old_name_is_another_one(server: Server) -> None:
    server.create("orders", 1)
    a = Consumer(server, "a", "orders")

    server.topics.delete("orders")
    again = server.create("orders", 1)
    settle(a)

    assert a.owned == partitions(again, 0)


def test_topics_of_others_do_not_disturb_a_group(server: Server) -> None:
    server.create("orders", 2)
    Consumer(server, "a", "orders")
    epoch = server.group.book.epoch

    server.create("events", 9)

    assert server.group.book.epoch == epoch


def test_a_changed_subscription_shares_out_anew(server: Server) -> None:
    server.create("orders", 2)
    events = server.create("events", 1)
    a = Consumer(server, "a", "orders")

    a.beat(topics=("events",))
    settle(a)

    assert a.owned == partitions(events, 0)
    assert a.epoch == 2


def test_members_with_different_subscriptions_get_what_they_want(server: Server) -> None:
    orders, events = server.create("orders", 3), server.create("events", 1)
    a = Consumer(server, "a", "orders", "events")
    b = Consumer(server, "b", "events")
    settle(a, b)

    assert a.owned == partitions(orders, 0, 1, 2)
    assert b.owned == partitions(events, 0)


# --- expressions ------------------------------------------------------------------------------


def test_an_expression_stands_for_whole_names_and_never_for_internal_topics(
    server: Server,
) -> None:
    orders = server.create("orders", 1)
    server.create("back-orders", 1)
    for name in INTERNAL_TOPICS:
        server.create(name, 1)
    a = Consumer(server, "a", topics=None, topic_regex="order.|.*_.*")

    assert a.owned == partitions(orders, 0)


def test_the_internal_topics_are_those_of_the_cluster() -> None:
    assert targets.INTERNAL_TOPICS == INTERNAL_TOPICS


def test_an_expression_is_resolved_again_when_topics_come_and_go(server: Server) -> None:
    a = Consumer(server, "a", topics=None, topic_regex="o.*")
    assert a.reads == set()

    orders = server.create("orders", 1)
    settle(a)
    assert a.owned == partitions(orders, 0)

    offers = server.create("offers", 1)
    server.drop("orders")
    settle(a)
    assert a.owned == partitions(offers, 0)


def test_names_and_expression_add_up(server: Server) -> None:
    orders, events = server.create("orders", 1), server.create("events", 1)
    a = Consumer(server, "a", "events", topic_regex="o.*")

    assert a.reads == {(orders, 0), (events, 0)}
    assert server.group.subscribes_to("orders")
    assert not server.group.subscribes_to("offers")


def test_an_empty_expression_ends_it(server: Server) -> None:
    server.create("orders", 1)
    a = Consumer(server, "a", topics=None, topic_regex="o.*")

    a.beat(topic_regex="")
    settle(a)

    assert a.reads == set()
    assert server.group.book.regexes == {}
    assert any(isinstance(record, RegexForgotten) for record in server.log)


def test_an_expression_is_forgotten_with_its_last_subscriber(server: Server) -> None:
    a = Consumer(server, "a", topics=None, topic_regex="o.*")
    b = Consumer(server, "b", topics=None, topic_regex="o.*")
    assert sum(isinstance(record, RegexResolved) for record in server.log) == 1

    a.leave()
    assert list(server.group.book.regexes) == ["o.*"]
    b.leave()
    assert server.group.book.regexes == {}


def test_an_expression_goes_over_to_whoever_takes_a_static_members_place(server: Server) -> None:
    orders = server.create("orders", 1)
    Consumer(server, "a", topics=None, topic_regex="o.*", instance_id="one").leave(-2)

    back = Consumer(server, "a2", topics=None, topic_regex="o.*", instance_id="one")
    server.grow("orders", 2)
    settle(back)

    assert back.owned == partitions(orders, 0, 1)


def test_an_expression_that_would_take_too_long_is_refused(server: Server) -> None:
    """``.*a.{120}`` has more states than there are names: each costs all of its program."""
    for i in range(1_000):
        server.topics.create(f"{'ab' * 90}{i:x}{'ba' * 30}", 1)

    answer = server.answer(a_join("a", topics=None, topic_regex="(.*(aa|b)){40}.{120}"))

    assert isinstance(answer, InvalidRegexError)
    assert "takes too long" in str(answer)


def test_an_expression_that_became_too_costly_keeps_what_it_stood_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = server.create("orders", 1)
    a = Consumer(server, "a", topics=None, topic_regex="o.*")
    monkeypatch.setattr("waystation.groups.patterns._WORK_MAX", 0)

    server.create("x" * 100, 1)
    server.create("offers", 1)
    settle(a)

    assert a.owned == partitions(orders, 0)

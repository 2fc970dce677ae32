"""``waystation view``, and what other commands say of views, against a real broker."""

import json

import pytest
from tests.support.command import waystation

KINDS = ("refund", "order", "order", "refund", "order", "refund")


@pytest.fixture(scope="module")
def orders(bootstrap: str) -> str:
    """A topic of three refunds among six messages."""
    at, name = ("--bootstrap", bootstrap), "orders-of-views"
    waystation("topic", "create", name, "--partitions", "1", *at)
    lines = "\n".join(f"{kind}:{kind} {n}" for n, kind in enumerate(KINDS)) + "\n"
    sent = waystation("produce", name, "--key-separator", ":", *at, typed=lines.encode())
    assert sent.code == 0, sent.err
    return name


def test_a_view_lives_and_dies(bootstrap: str, orders: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    name = topic
    where = "key = 'refund'"
    created = waystation("view", "create", name, "--on", orders, "--where", where, *at)
    listed = waystation("view", "list", "--json", *at)
    described = json.loads(waystation("view", "describe", name, "--count", "--json", *at).out)
    read = waystation("consume", name, "--from-beginning", "--json", *at)
    kept = waystation("topic", "delete", orders, "--yes", *at)
    deleted = waystation("view", "delete", name, "--json", *at)
    gone = waystation("view", "describe", name, *at)

    assert f"created view {name} of topic {orders} with 1 partition" in created.err
    assert created.code == read.code == deleted.code == 0
    told = [json.loads(line) for line in listed.out.splitlines()]
    assert [(one["on"], one["where"]) for one in told if one["view"] == name] == [(orders, where)]
    assert described["offsets"] == [
        {"partition": 0, "start": 0, "end": 6, "messages": 3, "counted_to": 6}
    ]
    assert [json.loads(line)["offset"] for line in read.out.splitlines()] == [0, 3, 5]
    assert (kept.code, deleted.code, gone.code) == (1, 0, 1)
    assert "delete them first: " in kept.err
    assert name in kept.err
    assert f"there is no view '{name}'" in gone.err


def test_a_mistake_is_shown_where_it_is(bootstrap: str, orders: str) -> None:
    at = ("--on", orders, "--bootstrap", bootstrap)
    wrong = waystation("view", "create", "w-" + orders, "--where", "kind = 'refund'", *at)

    assert wrong.code == 1
    assert "unknown field kind" in wrong.err
    assert wrong.err.rstrip().endswith("^^^^")


def test_creating_twice_is_fine_if_it_is_the_same(bootstrap: str, orders: str, topic: str) -> None:
    name, at = topic, ("--bootstrap", bootstrap)
    view = ("view", "create", name, "--on", orders, "--where")
    waystation(*view, "key = 'refund'", *at)

    assert waystation(*view, "key = 'refund'", *at).code == 1
    assert waystation(*view, "key = 'refund'", "--if-not-exists", *at).code == 0
    assert waystation(*view, "key = 'order'", "--if-not-exists", *at).code == 1


def test_only_views_are_deleted(bootstrap: str, orders: str) -> None:
    done = waystation("view", "delete", orders, "--yes", "--bootstrap", bootstrap)

    assert done.code == 1
    assert "is a topic, not a view" in done.err


def test_lag_is_in_messages_that_match(bootstrap: str, orders: str, topic: str) -> None:
    name, at = topic, ("--bootstrap", bootstrap)
    waystation("view", "create", name, "--on", orders, "--where", "key = 'refund'", *at)
    reading = ("--from-beginning", "--count", "1", "--group", f"g-{topic}")
    waystation("consume", name, *reading, *at)
    told = json.loads(waystation("group", "describe", f"g-{topic}", "--json", *at).out)
    table = waystation("group", "describe", f"g-{topic}", *at)

    (partition,) = told["partitions"]
    assert (partition["lag"], partition["end"], partition["lag_counted_to"]) == (2, 6, 6)
    assert told["total"]["lag"] == 2
    assert table.code == 0


def test_tables_are_for_people(bootstrap: str, orders: str, topic: str) -> None:
    name, at = topic, ("--bootstrap", bootstrap)
    waystation("view", "create", name, "--on", orders, "--where", "key = 'refund'", *at)

    assert "WHERE" in waystation("view", "list", *at).out
    described = waystation("view", "describe", name, "--count", *at)
    assert described.out.split() == ["PARTITION", "START", "END", "MESSAGES", "0", "0", "6", "3"]
    assert "where key = 'refund'" in described.err

"""Static members: they leave for a while and come back to what they had."""

import pytest

from tests.groups.consumers import Consumer, Server, a_join, settle
from waystation.model.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    InvalidRequestError,
    UnknownMemberError,
    UnreleasedInstanceIdError,
)


@pytest.fixture
def server() -> Server:
    server = Server()
    server.create("orders", 6)
    return server


def test_who_comes_back_takes_over_its_assignment_without_a_rebalance(server: Server) -> None:
    a = Consumer(server, "a", "orders", instance_id="one")
    b = Consumer(server, "b", "orders")
    settle(a, b)
    epoch = server.group.book.epoch
    a.leave(-2)
    b.beat()

    back = Consumer(server, "a2", "orders", instance_id="one")

    assert back.owned == a.owned
    assert server.group.book.epoch == epoch
    assert len(b.reads) == 3
    assert server.group.state == "Stable"


def test_who_does_not_come_back_loses_its_place_with_its_session(server: Server) -> None:
    a = Consumer(server, "a", "orders", instance_id="one")
    b = Consumer(server, "b", "orders")
    settle(a, b)
    a.leave(-2)

    for _ in range(9):
        server.wait(5_000)
        b.beat()
    b.beat()

    assert len(b.reads) == 6
    assert list(server.group.book.members) == ["b"]


def test_a_name_that_is_in_use_is_not_given_away(server: Server) -> None:
    a = Consumer(server, "a", "orders", instance_id="one")

    answer = server.answer(a_join("a2", "orders", instance_id="one"))

    assert isinstance(answer, UnreleasedInstanceIdError)
    assert a.beat().member_epoch == 1


def test_the_former_bearer_of_a_name_is_fenced(server: Server) -> None:
    a = Consumer(server, "a", "orders", instance_id="one")
    a.leave(-2)
    Consumer(server, "a2", "orders", instance_id="one")

    assert isinstance(server.beat("a", 1, instance_id="one"), FencedInstanceIdError)
    assert isinstance(server.beat("a", -1, instance_id="one"), FencedInstanceIdError)
    assert isinstance(server.beat("a", 1), UnknownMemberError)


def test_who_left_for_a_while_must_join_to_go_on(server: Server) -> None:
    a = Consumer(server, "a", "orders", instance_id="one")
    a.leave(-2)

    assert isinstance(server.beat("a", 1, instance_id="one", owned=a.owned), FencedMemberEpochError)
    assert server.joined("a", "orders", instance_id="one").assignment == a.owned


def test_a_lost_answer_to_the_takeover_can_be_asked_for_again(server: Server) -> None:
    Consumer(server, "a", "orders", instance_id="one").leave(-2)
    first = server.joined("a2", "orders", instance_id="one")

    assert server.joined("a2", "orders", instance_id="one") == first


def test_what_it_was_giving_up_when_it_left_is_free_at_once(server: Server) -> None:
    a = Consumer(server, "a", "orders", instance_id="one")
    b = Consumer(server, "b", "orders")
    a.beat()

    a.leave(-2)
    b.beat()

    assert len(b.reads) == 3


def test_leaving_for_good_frees_name_and_partitions(server: Server) -> None:
    a = Consumer(server, "a", "orders", instance_id="one")
    b = Consumer(server, "b", "orders")
    settle(a, b)

    a.leave(-1)
    b.beat()

    assert len(b.reads) == 6
    assert Consumer(server, "c", "orders", instance_id="one").epoch > 0


def test_a_member_cannot_take_a_name_by_the_way(server: Server) -> None:
    Consumer(server, "a", "orders", instance_id="one").leave(-2)
    b = Consumer(server, "b", "orders")

    answer = server.answer(a_join("b", "orders", instance_id="one"))

    assert isinstance(answer, InvalidRequestError)
    assert b.beat().member_epoch == b.epoch


def test_an_unknown_name_is_no_member(server: Server) -> None:
    Consumer(server, "a", "orders")

    assert isinstance(server.beat("a", 1, instance_id="one"), UnknownMemberError)

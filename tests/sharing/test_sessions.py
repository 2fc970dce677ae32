"""Sessions of queues' consumers: each request counts once, and there are not too many."""

from uuid import UUID

import pytest

from waystation.model.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitError,
    ShareSessionNotFoundError,
)
from waystation.model.ids import TopicId
from waystation.sharing.sessions import ShareSessions
from waystation.sharing.settings import ShareSettings

TOPIC = TopicId(UUID(int=1))
P0, P1, P2 = ((TOPIC, index) for index in range(3))


def sessions(limit: int = 2) -> ShareSessions:
    settings = ShareSettings(group_share_max_share_sessions=limit)
    return ShareSessions(lambda: settings)


def test_a_session_remembers_what_is_read() -> None:
    shared = sessions()

    assert shared.fetch("g", "a", 0, [P0, P1]).reads == (P0, P1)
    assert set(shared.fetch("g", "a", 1, []).reads) == {P0, P1}
    turn = shared.fetch("g", "a", 2, [P2], [P0, (TOPIC, 9)])
    assert (set(turn.reads), turn.ended) == ({P1, P2}, (P0,))
    assert shared.acknowledge("g", "a", 3) == ((), (), False)
    assert shared.fetch("g", "a", -1, []) == ((), (P1, P2), True)
    assert len(shared) == 0


def test_each_turn_begins_with_another_partition() -> None:
    shared = sessions()
    shared.fetch("g", "a", 0, [P0, P1, P2])

    assert {shared.fetch("g", "a", epoch, []).reads[0] for epoch in (1, 2, 3)} == {P0, P1, P2}


def test_a_request_is_followed_once() -> None:
    shared = sessions()
    shared.fetch("g", "a", 0, [P0])
    shared.fetch("g", "a", 1, [])

    for epoch in (1, 3, -2):
        with pytest.raises(InvalidShareSessionEpochError):
            shared.fetch("g", "a", epoch, [])
        with pytest.raises(InvalidShareSessionEpochError):
            shared.acknowledge("g", "a", epoch)
    with pytest.raises(InvalidShareSessionEpochError):
        shared.acknowledge("g", "a", 0)


def test_who_has_no_session_is_told() -> None:
    with pytest.raises(ShareSessionNotFoundError):
        sessions().fetch("g", "a", 4, [])
    with pytest.raises(ShareSessionNotFoundError):
        sessions().acknowledge("g", "a", -1)


def test_nothing_is_acknowledged_while_a_session_is_opened() -> None:
    with pytest.raises(InvalidRequestError):
        sessions().fetch("g", "a", 0, [P0], acknowledges=True)


def test_there_are_not_too_many_and_nobody_loses_one() -> None:
    shared = sessions(limit=2)
    shared.fetch("g", "a", 0, [P0])
    shared.fetch("g", "b", 0, [P0])

    with pytest.raises(ShareSessionLimitError):
        shared.fetch("g", "c", 0, [P0])
    assert shared.fetch("g", "a", 0, [P1]) == ((P1,), (P0,), False)
    assert shared.fetch("g", "b", 1, []).reads == (P0,)


def test_a_connection_takes_its_sessions_along() -> None:
    shared, here, there = sessions(), object(), object()
    shared.fetch("g", "a", 0, [P0], connection=here)
    shared.fetch("g", "b", 0, [P1], connection=there)

    assert shared.disconnected(here) == [("g", "a", (P0,))]
    assert len(shared) == 1

"""Who cannot answer for a group says so where each version of each API has a place for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.apis.conftest import MakeNode
from tests.apis.grouping import Grouping, Seat
from tests.apis.kit import ThreadedNode, versions
from waystation.messages.list_groups import ListGroupsRequest
from waystation.messages.offset_fetch import OffsetFetchRequestTopic
from waystation.model.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    ErrorCode,
    NotCoordinatorError,
    WaystationError,
)
from waystation.wire.versions import ApiKey

SEAT = Seat("g", "m", 1)
FETCH_GROUP_ERROR_FROM = 2

REFUSALS = [CoordinatorLoadingError, CoordinatorNotAvailableError, NotCoordinatorError]


def join(ann: Grouping, topic: str, version: int) -> int:
    told = ann.join("g", "m", version=version)
    assert (told.member_id, told.generation_id, told.members) == ("m", -1, [])
    return int(told.error_code)


def sync(ann: Grouping, topic: str, version: int) -> int:
    return int(ann.sync(SEAT, version=version).error_code)


def heartbeat(ann: Grouping, topic: str, version: int) -> int:
    return ann.heartbeat(SEAT, version=version)


def leave(ann: Grouping, topic: str, version: int) -> int:
    told = ann.leave("g", ("m", None), version=version)
    assert told.members == []
    return int(told.error_code)


def commit(ann: Grouping, topic: str, version: int) -> int:
    return ann.commit("g", topic, 1, version=version)


def fetch_offsets(ann: Grouping, topic: str, version: int) -> int:
    topic_id = ann.topic_id(topic)
    asked = OffsetFetchRequestTopic(name=topic, topic_id=topic_id, partition_indexes=[0, 5])
    told = ann.fetch_offsets("g", [asked], version=version)
    if version >= FETCH_GROUP_ERROR_FROM:
        assert told.topics == []
        return int(told.error_code)
    (named,) = told.topics
    assert [(one.partition_index, one.committed_offset) for one in named.partitions] == [
        (0, -1), (5, -1),
    ]  # fmt: skip
    (code,) = {one.error_code for one in named.partitions}
    return int(code)


def delete_offsets(ann: Grouping, topic: str, version: int) -> int:
    told = ann.delete_offsets("g", topic, 0)
    assert told.topics == []
    return int(told.error_code)


def describe(ann: Grouping, topic: str, version: int) -> int:
    told = ann.describe("g", version=version)
    assert (told.group_id, told.group_state, told.members) == ("g", "", [])
    return int(told.error_code)


def delete(ann: Grouping, topic: str, version: int) -> int:
    ((group, code),) = ann.delete_groups("g", version=version)
    assert group == "g"
    return code


def beat(ann: Grouping, topic: str, version: int) -> int:
    told = ann.beat("g", "m", 1, version=version)
    assert told.error_message
    return int(told.error_code)


def describe_server_side(ann: Grouping, topic: str, version: int) -> int:
    told = ann.describe_server_side("g", version=version)
    assert told.group_id == "g"
    assert told.error_message
    return int(told.error_code)


QUESTIONS: dict[ApiKey, Callable[[Grouping, str, int], int]] = {
    ApiKey.JOIN_GROUP: join,
    ApiKey.SYNC_GROUP: sync,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave,
    ApiKey.OFFSET_COMMIT: commit,
    ApiKey.OFFSET_FETCH: fetch_offsets,
    ApiKey.OFFSET_DELETE: delete_offsets,
    ApiKey.DESCRIBE_GROUPS: describe,
    ApiKey.DELETE_GROUPS: delete,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: beat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: describe_server_side,
}
EVERY_VERSION = [(key, version) for key in QUESTIONS for version in versions(key)]


@contextmanager
def nobody_here(coordinator: ThreadedNode, error: WaystationError) -> Iterator[None]:
    """The node answers for no group, for the reason given."""
    groups: Any = coordinator.node.broker.groups

    def refuse(_group_id: str) -> None:
        raise error

    groups.host_of = refuse
    try:
        yield
    finally:
        del groups.host_of


@pytest.fixture(scope="module")
def shared_topic(coordinator: ThreadedNode) -> str:
    with Grouping(*coordinator.address) as client:
        client.create("asked-in-vain")
    return "asked-in-vain"


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_every_version_has_a_place_for_it(
    coordinator: ThreadedNode, ann: Grouping, shared_topic: str, key: ApiKey, version: int
) -> None:
    for refusal in REFUSALS:
        with nobody_here(coordinator, refusal("for this test")):
            assert QUESTIONS[key](ann, shared_topic, version) == refusal.code


def test_until_somebody_looks_for_a_coordinator_there_is_none(
    make_node: MakeNode, topic: str
) -> None:
    with Grouping(*make_node().address) as ann:
        ann.create(topic)
        for key, ask in QUESTIONS.items():
            for version in versions(key):
                assert ask(ann, topic, version) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert ann.listed() == {}


def test_half_a_list_is_not_told(
    coordinator: ThreadedNode, ann: Grouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(coordinator.node.broker.groups), "loading", 1)

    for version in versions(ApiKey.LIST_GROUPS):
        told = ann.ask(ListGroupsRequest(), version)
        assert (told.error_code, told.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])

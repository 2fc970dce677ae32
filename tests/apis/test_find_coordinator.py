"""FindCoordinator: who looks after a group, and where its offsets live."""

import pytest

from tests.apis.conftest import MakeNode, coordinate
from tests.apis.grouping import OFFSETS_TOPIC, Grouping
from tests.apis.kit import ThreadedNode, batch_of, versions
from waystation.messages.find_coordinator import SHARE, FindCoordinatorRequest
from waystation.messages.metadata import MetadataRequest
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_every_version_finds_the_broker(
    coordinator: ThreadedNode, ann: Grouping, group: str, version: int
) -> None:
    found = ann.find(group, version=version)

    assert (found.error_code, found.error_message) == (0, None)
    assert (found.node_id, found.host, found.port) == (1, *coordinator.address)


def test_many_groups_are_found_at_once(ann: Grouping) -> None:
    keys = ["b", "a", "", "ü" * 1_000]
    found = ann.ask(FindCoordinatorRequest(coordinator_keys=keys), 4).coordinators

    assert [(one.key, one.error_code, one.node_id) for one in found] == [(k, 0, 1) for k in keys]
    assert ann.ask(FindCoordinatorRequest(coordinator_keys=[]), 4).coordinators == []


@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (SHARE, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.INVALID_REQUEST),
        (-1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_nobody_coordinates_is_refused_at_once(
    ann: Grouping, key_type: int, code: ErrorCode
) -> None:
    request = FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k", "l"])
    old, (first, second) = ann.ask(request, 1), ann.ask(request, 6).coordinators

    for told in (old, first, second):
        assert (told.error_code, told.node_id, told.host, told.port) == (code, -1, "", -1)
        assert told.error_message


def test_the_first_question_makes_the_internal_topic(make_node: MakeNode) -> None:
    running = make_node(offsets_topic_num_partitions="3")
    with Grouping(*running.address) as client:
        assert client.ask(MetadataRequest(topics=None), 9).topics == []

        coordinate(running)

        (made,) = client.ask(MetadataRequest(topics=None), 9).topics
        assert (made.name, made.is_internal, len(made.partitions)) == (OFFSETS_TOPIC, True, 3)


def test_many_first_questions_make_it_once(make_node: MakeNode) -> None:
    running = make_node()
    askers = [Grouping(*running.address) for _ in range(5)]
    for one in askers:
        one.send(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    found = [one.receive(ApiKey.FIND_COORDINATOR, 4).coordinators[0] for one in askers]

    assert [one.error_code for one in found] == [0] * 5
    assert askers[0].partitions_of(OFFSETS_TOPIC) == 50
    for one in askers:
        one.close()


def test_clients_may_read_the_internal_topic_but_not_write_it(ann: Grouping) -> None:
    refused = ann.produce(OFFSETS_TOPIC, batch_of(b"x"))

    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ann.fetch(OFFSETS_TOPIC, 0).error_code == 0

"""Fetch sessions on the wire: what changed is named, and nothing else, by either side."""

import pytest

from tests.apis.asking import Asking, session_request
from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode, batch_of, versions
from waystation.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

BY_NAME, BY_ID = 11, 13


def wanted(topic: str, *offsets: int) -> list[FetchTopic]:
    """All partitions of a topic, each from its offset on."""
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in enumerate(offsets)
    ]
    return [FetchTopic(topic=topic, partitions=partitions)]


def mentioned(response: FetchResponse) -> list[int]:
    return [one.partition_index for topic in response.responses for one in topic.partitions]


@pytest.mark.parametrize("version", [v for v in versions(ApiKey.FETCH) if v >= 7])
def test_a_session_names_only_what_changed(client: Asking, topic: str, version: int) -> None:
    client.create(topic, partitions=3)
    topics = wanted(topic, 0, 0, 0)
    topics[0].topic_id = client.topic_id(topic)
    opened = client.ask(session_request(0, 0, topics), version)
    assert opened.session_id > 0
    assert mentioned(opened) == [0, 1, 2]
    session = opened.session_id

    quiet = client.ask(session_request(session, 1), version)
    assert (quiet.error_code, quiet.session_id, mentioned(quiet)) == (0, session, [])

    client.produce(topic, batch_of(b"x"), partition=1)
    assert mentioned(client.ask(session_request(session, 2), version)) == [1]
    # Until the client moves on it is told again.
    assert mentioned(client.ask(session_request(session, 3), version)) == [1]
    onward = FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1 << 20)
    moved = [FetchTopic(topic=topic, topic_id=topics[0].topic_id, partitions=[onward])]
    assert mentioned(client.ask(session_request(session, 4, moved), version)) == []


def test_a_busy_partition_goes_behind_the_others(client: Asking, topic: str) -> None:
    client.create(topic, partitions=2)
    for partition in (0, 1):
        client.produce(topic, batch_of(b"x" * 100), partition=partition)
    opened = client.ask(session_request(0, 0, wanted(topic, 0, 0)), BY_NAME)
    request = session_request(opened.session_id, 1)
    request.max_bytes = 1

    assert mentioned(opened) == [0, 1]
    assert mentioned(client.ask(request, BY_NAME)) == [0]
    request.session_epoch = 2
    assert mentioned(client.ask(request, BY_NAME)) == [1]


def test_a_forgotten_partition_is_not_read(client: Asking, topic: str) -> None:
    client.create(topic, partitions=2)
    opened = client.ask(session_request(0, 0, wanted(topic, 0, 0)), BY_NAME)
    client.produce(topic, batch_of(b"x"), partition=0)
    client.produce(topic, batch_of(b"x"), partition=1)
    forget = [ForgottenTopic(topic=topic, partitions=[0])]

    found = client.ask(session_request(opened.session_id, 1, (), forget), BY_NAME)
    assert mentioned(found) == [1]


def test_a_session_ends_with_its_last_partition(client: Asking, topic: str) -> None:
    client.create(topic)
    opened = client.ask(session_request(0, 0, wanted(topic, 0)), BY_NAME)
    forget = [ForgottenTopic(topic=topic, partitions=[0])]
    ended = client.ask(session_request(opened.session_id, 1, (), forget), BY_NAME)
    after = client.ask(session_request(opened.session_id, 2), BY_NAME)

    assert (ended.error_code, ended.session_id) == (0, 0)
    assert after.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_is_closed_on_request(client: Asking, topic: str) -> None:
    client.create(topic)
    opened = client.ask(session_request(0, 0, wanted(topic, 0)), BY_NAME)
    closing = client.ask(session_request(opened.session_id, -1, wanted(topic, 0)), BY_NAME)
    after = client.ask(session_request(opened.session_id, 1), BY_NAME)

    assert (closing.error_code, closing.session_id, mentioned(closing)) == (0, 0, [0])
    assert after.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_never_was_is_not_found(client: Asking) -> None:
    found = client.ask(session_request(123_456, 1), BY_NAME)

    assert (found.error_code, found.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


@pytest.mark.parametrize("epoch", [2, 9])
def test_a_wrong_epoch_is_refused_and_the_session_goes_on(
    client: Asking, topic: str, epoch: int
) -> None:
    client.create(topic)
    opened = client.ask(session_request(0, 0, wanted(topic, 0)), BY_NAME)
    wrong = client.ask(session_request(opened.session_id, epoch), BY_NAME)
    right = client.ask(session_request(opened.session_id, 1), BY_NAME)

    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert right.error_code == 0


def test_a_session_by_name_cannot_go_on_by_id(client: Asking, topic: str) -> None:
    client.create(topic)
    opened = client.ask(session_request(0, 0, wanted(topic, 0)), BY_NAME)
    by_id = client.ask(session_request(opened.session_id, 1), BY_ID)
    lost = client.ask(session_request(opened.session_id, 5), BY_ID)

    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert lost.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_topic_made_anew_is_an_error_until_it_is_forgotten(client: Asking, topic: str) -> None:
    client.create(topic)
    topics = wanted(topic, 0)
    old = topics[0].topic_id = client.topic_id(topic)
    opened = client.ask(session_request(0, 0, topics), BY_ID)
    client.delete(topic)
    client.create(topic)
    client.produce(topic, batch_of(b"new"))
    found = client.ask(session_request(opened.session_id, 1), BY_ID)

    (told,) = found.responses[0].partitions
    assert (found.responses[0].topic_id, told.error_code) == (old, ErrorCode.UNKNOWN_TOPIC_ID)
    anew = wanted(topic, 0)
    anew[0].topic_id = client.topic_id(topic)
    forget = [ForgottenTopic(topic_id=old, partitions=[0])]
    found = client.ask(session_request(opened.session_id, 2, anew, forget), BY_ID)
    assert [one.topic_id for one in found.responses] == [anew[0].topic_id]
    assert found.responses[0].partitions[0].high_watermark == 1


def test_without_room_a_client_goes_without_a_session(make_node: MakeNode, topic: str) -> None:
    small = make_node(max_incremental_fetch_session_cache_slots="1")
    with Asking(*small.address) as client:
        client.create(topic)
        first = client.ask(session_request(0, 0, wanted(topic, 0)), BY_NAME)
        second = client.ask(session_request(0, 0, wanted(topic, 0)), BY_NAME)

        assert first.session_id > 0
        assert (second.session_id, mentioned(second)) == (0, [0])
        # Who opens anew gives up the slot it had.
        again = client.ask(session_request(first.session_id, 0, wanted(topic, 0)), BY_NAME)
        assert again.session_id not in (0, first.session_id)


def test_a_new_log_start_is_news(node: ThreadedNode, client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"x"))
    opened = client.ask(session_request(0, 0, wanted(topic, 1)), BY_NAME)
    client.delete_records(topic, -1)

    found = client.ask(session_request(opened.session_id, 1), BY_NAME)
    assert found.responses[0].partitions[0].log_start_offset == 1

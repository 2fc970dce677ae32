"""ApiVersions: what every client asks first, whatever its age."""

import struct

import pytest

from tests.apis.asking import Asking
from tests.apis.kit import HungUpError, versions
from waystation.apis.registry import APIS
from waystation.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from waystation.messages.metadata import MetadataRequest
from waystation.model.errors import ErrorCode
from waystation.wire.versions import SPOKEN, ApiKey


def question(name: str = "kit", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_every_version_lists_every_api(client: Asking, version: int) -> None:
    answer = client.ask(question(), version)

    assert answer.error_code == 0
    listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert listed == {key: tuple(api.advertised) for key, api in APIS.items()}
    levels = [(one.name, one.max_version_level) for one in answer.finalized_features]
    assert (levels != []) == (version >= 3)


def test_produce_is_advertised_from_zero_so_that_old_clients_compress(client: Asking) -> None:
    listed = {one.api_key: one.min_version for one in client.ask(question(), 0).api_keys}

    assert listed[ApiKey.PRODUCE] == 0
    assert SPOKEN[ApiKey.PRODUCE].versions.low == 3


def test_groups_are_promised_of_both_kinds(client: Asking) -> None:
    answer = client.ask(question(), 3)
    listed = {one.api_key: one.max_version for one in answer.api_keys}

    assert listed[ApiKey.FIND_COORDINATOR] == 6
    # Clients use the server-side protocol only if version 1 of it is there, and switched on.
    assert listed[ApiKey.CONSUMER_GROUP_HEARTBEAT] == 1
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert levels["group.version"] == 1


def test_transactions_are_promised_with_an_epoch_each(client: Asking) -> None:
    old, new = client.ask(question(), 3), client.ask(question(), 4)

    for answer in (old, new):
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        assert levels["transaction.version"] == 2
    ranges = {one.name: (one.min_version, one.max_version) for one in new.supported_features}
    assert ranges["transaction.version"] == (0, 2)
    assert {name: high for name, (_, high) in ranges.items()} == levels
    # A lowest level of 0 is what clients of version 3 cannot read.
    assert all(one.min_version > 0 for one in old.supported_features)


def test_eligible_leaders_are_promised(client: Asking) -> None:
    answer = client.ask(question(), 4)
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    listed = {one.api_key for one in answer.api_keys}

    assert levels["eligible.leader.replicas.version"] == 1
    assert ApiKey.DESCRIBE_TOPIC_PARTITIONS in listed


def test_our_own_apis_have_numbers_far_from_kafkas(client: Asking) -> None:
    listed = {one.api_key for one in client.ask(question(), 4).api_keys}

    assert {key for key in listed if key >= 1_000} == {
        ApiKey.PREPARE_TXN,
        ApiKey.TXN_OUTCOME,
        ApiKey.CLUSTER_STATUS,
        ApiKey.DRAIN_BROKER,
        ApiKey.LIST_SCHEDULED,
        ApiKey.DESCRIBE_SCHEDULED,
        ApiKey.CANCEL_SCHEDULED,
        ApiKey.RETIME_SCHEDULED,
        ApiKey.DESCRIBE_VIEWS,
        ApiKey.COUNT_MATCHING,
        ApiKey.QUEUE_STATUS,
        ApiKey.FIND_MESSAGES,
        ApiKey.PRODUCE_ONCE,
        ApiKey.ONCE_KEYS,
        ApiKey.REDRIVE_DEAD_LETTERS,
        ApiKey.DESCRIBE_REDRIVE,
        ApiKey.CANCEL_REDRIVE,
    }


@pytest.mark.parametrize("version", [5, 9, 32_767, -1])
def test_a_version_from_the_future_is_answered_in_the_oldest(client: Asking, version: int) -> None:
    client.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + b"\0\1\1\0")
    frame = memoryview(client.receive_frame())
    answer = ApiVersionsResponse.decode(frame[4:], 0)

    assert struct.unpack(">i", frame[:4]) == (77,)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    listed = {one.api_key: one.max_version for one in answer.api_keys}
    assert listed[ApiKey.API_VERSIONS] == 4
    # The connection goes on: the client asks again in an older way.
    assert client.ask(question(), 4).error_code == 0


@pytest.mark.parametrize("name", ["", "two words", "-dash", "ümlaut"])
def test_software_that_is_no_name_is_refused(client: Asking, name: str) -> None:
    assert client.ask(question(name), 3).error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(question("kit", name), 4).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", [999, -1, ApiKey.SASL_HANDSHAKE, ApiKey.ELECT_LEADERS])
def test_an_api_that_is_not_served_ends_its_own_connection_only(
    client: Asking, other: Asking, key: int
) -> None:
    client.send_frame(struct.pack(">hhih", key, 0, 7, -1))

    assert client.is_hung_up()
    assert other.ask(MetadataRequest(topics=[]), 1).brokers


@pytest.mark.parametrize("key", [key for key in APIS if key is not ApiKey.API_VERSIONS])
def test_a_version_that_is_not_spoken_ends_the_connection(client: Asking, key: ApiKey) -> None:
    client.send_frame(struct.pack(">hhih", key, SPOKEN[key].versions.high + 1, 7, -1) + b"\0" * 40)

    with pytest.raises(HungUpError):
        client.receive_frame()


def test_what_came_before_a_bad_request_is_answered(client: Asking) -> None:
    client.send(question(), 0)
    client.send_frame(struct.pack(">hhih", 999, 0, 7, -1))

    assert client.receive(ApiKey.API_VERSIONS, 0).error_code == 0
    assert client.is_hung_up()

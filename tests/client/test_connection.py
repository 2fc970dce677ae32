"""Versions are agreed on first; after that every answer finds its question."""

import asyncio

import pytest
from tests.support.scripted_broker import ScriptedBroker

from waystation.client.bootstrap import Address
from waystation.client.connection import Connection
from waystation.client.errors import ConnectionLostError
from waystation.messages.api_versions import ApiVersion, ApiVersionsResponse
from waystation.messages.metadata import MetadataRequest, MetadataResponse
from waystation.model.errors import (
    MalformedFrameError,
    RequestTimedOutError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey, Versions

NODE = Address("node-1", 9092)


async def opened(broker: ScriptedBroker) -> Connection:
    return await Connection.open(NODE, broker.connect, "me", timeout_s=5.0)


async def test_the_best_common_version_is_used() -> None:
    broker = ScriptedBroker()
    broker.versions[ApiKey.METADATA] = Versions(0, 5)
    connection = await opened(broker)
    await connection.ask(MetadataRequest(topics=[]), MetadataResponse, 5.0)

    assert broker.asked[-1][2] == 5


async def test_a_newer_broker_is_spoken_to_in_our_newest_version() -> None:
    broker = ScriptedBroker()
    broker.versions[ApiKey.METADATA] = Versions(9, 99)
    connection = await opened(broker)

    assert connection.version_of(ApiKey.METADATA) == 13


async def test_no_common_version_is_said_when_it_matters() -> None:
    broker = ScriptedBroker()
    broker.versions[ApiKey.METADATA] = Versions(90, 99)
    connection = await opened(broker)

    with pytest.raises(UnsupportedVersionError, match="METADATA"):
        connection.version_of(ApiKey.METADATA)


async def test_a_broker_that_knows_only_old_versions_answers_in_the_oldest() -> None:
    """It refuses our ApiVersions in v0, whatever we asked in, and is asked again in v0."""
    broker = ScriptedBroker()
    transport = await broker.connect(NODE)

    def refuse_the_new(request: Message) -> Message:
        if broker.asked[-1][2] > 0:
            return _InV0(error_code=35)
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=4)]
        )

    broker.handlers[ApiKey.API_VERSIONS] = refuse_the_new
    connection = await opened(broker)

    assert connection.version_of(ApiKey.METADATA) == 4
    assert [version for _, _, version, _ in broker.asked] == [4, 0]
    transport.close()


class _InV0(ApiVersionsResponse, api=ApiKey.API_VERSIONS):
    """Encodes itself as v0 in whatever version it is asked for."""

    def encode(self, version: int) -> bytes:
        return ApiVersionsResponse(error_code=self.error_code).encode(0)


async def test_requests_are_pipelined() -> None:
    broker = ScriptedBroker()
    held: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    connection = await opened(broker)
    broker.handlers[ApiKey.METADATA] = lambda _: held
    answers = [
        connection.start(MetadataRequest(topics=[]), MetadataResponse, 5.0) for _ in range(4)
    ]

    assert connection.in_flight == 4

    held.set_result(MetadataResponse(cluster_id="c"))

    assert [answer.cluster_id for answer in await asyncio.gather(*answers)] == ["c"] * 4
    assert connection.in_flight == 0


async def test_an_answer_that_is_late_ends_the_connection_and_the_others_wait() -> None:
    broker = ScriptedBroker()
    connection = await opened(broker)
    broker.handlers[ApiKey.METADATA] = lambda _: None
    late = connection.start(MetadataRequest(topics=[]), MetadataResponse, 0.01)
    behind = connection.start(MetadataRequest(topics=[]), MetadataResponse, 5.0)

    with pytest.raises(RequestTimedOutError, match="node-1:9092 did not answer METADATA"):
        await late
    with pytest.raises(ConnectionLostError):
        await behind
    assert connection.closed


async def test_a_broker_that_says_nothing_is_given_up() -> None:
    broker = ScriptedBroker()
    broker.handlers[ApiKey.API_VERSIONS] = lambda _: None

    with pytest.raises((ConnectionLostError, RequestTimedOutError), match="did not answer"):
        await Connection.open(NODE, broker.connect, "me", timeout_s=0.01)
    assert broker.transports[0].closed


class Heard(list[MetadataResponse | WaystationError]):
    """Who was told what, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    def __call__(self, answer: MetadataResponse | WaystationError) -> None:
        self.append(answer)
        self.news.set()


def pose(connection: Connection, heard: Heard, timeout_s: float = 5.0) -> None:
    connection.pose(MetadataRequest(topics=[]), MetadataResponse.decode, heard, timeout_s)


async def test_what_is_posed_is_answered_without_a_future() -> None:
    connection, heard = await opened(ScriptedBroker()), Heard()
    pose(connection, heard)
    assert (connection.in_flight, heard) == (1, [])
    await heard.news.wait()

    assert isinstance(heard[0], MetadataResponse)
    assert connection.in_flight == 0


async def test_what_is_posed_and_not_answered_in_time_ends_the_connection() -> None:
    broker = ScriptedBroker()
    connection, heard = await opened(broker), Heard()
    pose(connection, heard, 0.01)
    await heard.news.wait()
    heard.news.clear()
    broker.handlers[ApiKey.METADATA] = lambda request: None
    pose(connection, heard, 0.01)
    await heard.news.wait()

    assert isinstance(heard[1], ConnectionLostError)
    assert connection.closed


async def test_a_reply_that_cannot_be_read_ends_the_connection_of_who_posed() -> None:
    def refuse(view: memoryview, version: int) -> MetadataResponse:
        raise MalformedFrameError("nonsense")

    connection, heard = await opened(ScriptedBroker()), Heard()
    connection.pose(MetadataRequest(topics=[]), refuse, heard, 5.0)
    await heard.news.wait()

    assert isinstance(heard[0], MalformedFrameError)
    assert connection.closed

"""A broker inside the test: real frames over a transport without a socket, scripted answers.

Each request is decoded by the broker's side of the codec and handed to the handler that the
test gave for its API; what the handler returns is encoded and comes back as a real reply.  A
handler may return a future to answer later, ``None`` not to answer, or raise
``ConnectionLostError`` to end the connection.
"""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from waystation.client.bootstrap import Address
from waystation.client.errors import ConnectionLostError
from waystation.client.transport import Told, Transport, tell_when_done
from waystation.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from waystation.messages.catalog import request_type
from waystation.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from waystation.wire.headers import decode_request_header, encode_response_header
from waystation.wire.message import Message
from waystation.wire.schema import Part
from waystation.wire.versions import SPOKEN, ApiKey

Answer = Message | asyncio.Future[Message] | None
Handler = Callable[[Message], Answer]

TOPIC_ID = UUID(int=42)


class ScriptedBroker:
    """One or more nodes at ``node-1:9092``, ``node-2:9092`` and so on, each leading partitions.

    ``leaders`` says who leads which partition of ``topic``; change it and answer
    NOT_LEADER_OR_FOLLOWER to move one.
    """

    def __init__(self, topic: str = "orders", leaders: Sequence[int] = (1,)) -> None:
        self.topic = topic
        self.leaders = list(leaders)
        self.epoch = 0
        self.handlers: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
        }
        self.versions = {key: spoken.versions for key, spoken in SPOKEN.items()}
        self.asked: list[tuple[int, ApiKey, int, Message]] = []
        self.transports: list[ScriptedTransport] = []
        self.refuses: set[int] = set()

    @property
    def bootstrap(self) -> str:
        return "node-1:9092"

    async def connect(self, address: Address) -> Transport:
        node = int(address.host.removeprefix("node-"))
        if node in self.refuses:
            raise ConnectionRefusedError(111, "Connection refused")
        transport = ScriptedTransport(self, node)
        self.transports.append(transport)
        return transport

    def requests(self, api: ApiKey) -> list[Message]:
        return [message for _, key, _, message in self.asked if key is api]

    def api_versions(self, request: Message) -> Message:
        assert isinstance(request, ApiVersionsRequest)
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(api_keys=keys)

    def metadata(self, request: Message) -> Message:
        assert isinstance(request, MetadataRequest)
        nodes = sorted({1, *self.leaders} - {-1})
        brokers = [
            MetadataResponseBroker(node_id=node, host=f"node-{node}", port=9092) for node in nodes
        ]
        topics = [self.described(topic.name or "") for topic in request.topics or ()]
        return MetadataResponse(brokers=brokers, controller_id=1, cluster_id="c", topics=topics)

    def described(self, name: str) -> MetadataResponseTopic:
        if name != self.topic:
            return MetadataResponseTopic(name=name, error_code=3)
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=self.epoch,
                replica_nodes=[max(leader, 1)],
                isr_nodes=[max(leader, 1)],
                error_code=0 if leader >= 0 else 5,
            )
            for index, leader in enumerate(self.leaders)
        ]
        return MetadataResponseTopic(name=name, topic_id=TOPIC_ID, partitions=partitions)


class ScriptedTransport:
    """Carries frames to a handler and its answers back, in order."""

    def __init__(self, broker: ScriptedBroker, node: int) -> None:
        self.broker, self.node = broker, node
        self.closed = False
        self.congested = False
        self._waiting: list[asyncio.Future[memoryview]] = []

    async def drained(self) -> None:
        return

    def request(self, frame: Sequence[Part]) -> asyncio.Future[memoryview]:
        reply: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if self.closed:
            reply.set_exception(ConnectionLostError("closed"))
            return reply
        self._waiting.append(reply)
        self._handle(frame, reply)
        return reply

    def exchange(self, frame: Sequence[Part], told: Told) -> None:
        tell_when_done(self.request(frame), told)

    def send(self, frame: Sequence[Part]) -> None:
        self._handle(frame, None)

    def close(self) -> None:
        self.closed = True
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(ConnectionLostError("the connection was lost"))
        self._waiting.clear()

    def _handle(self, frame: Sequence[Part], reply: asyncio.Future[memoryview] | None) -> None:
        raw = memoryview(b"".join(bytes(part) for part in frame))  # type: ignore[arg-type]
        header = decode_request_header(raw)
        api, version = ApiKey(header.api_key), header.api_version
        message = request_type(api).decode(raw[header.body_at :], version)
        self.broker.asked.append((self.node, api, version, message))
        try:
            answer = self.broker.handlers[api](message)
        except ConnectionLostError:
            self.close()
            return
        head = encode_response_header(api, version, header.correlation_id)
        if reply is None or answer is None:
            return
        if isinstance(answer, Message):
            self._answer(reply, head, answer, version)
        else:
            answer.add_done_callback(lambda done: self._answer(reply, head, done.result(), version))

    def _answer(
        self, reply: asyncio.Future[memoryview], head: bytes, answer: Message, version: int
    ) -> None:
        if not reply.done():
            reply.set_result(memoryview(head + answer.encode(version)))

"""Brokers that ask each other: one connection per purpose, back-off, lives that end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from waystation.broker.peers import Peers
from waystation.client.bootstrap import Address
from waystation.client.transport import Transport, connect_tcp
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import BrokerImage
from waystation.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from waystation.messages.metadata import MetadataRequest, MetadataResponse
from waystation.model.errors import PeerUnreachableError
from waystation.model.ids import BrokerEpoch, NodeId
from waystation.node.node import Node
from waystation.node.settings import load
from waystation.runtime.chance import SeededChance

SELF, PEER, STRANGER = NodeId(7), NodeId(1), NodeId(9)
QUESTION = MetadataRequest(topics=[])


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    options = {"listen": "127.0.0.1:0", "http": "none", "log.dirs": str(tmp_path / "data")}
    running = Node(load([("test", options)]))
    try:
        await running.start()
        yield running
    finally:
        await running.stop()


class World:
    """A cluster of one peer as the asking broker sees it, and the connections it makes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.connects = 0
        self.image = ClusterImage()
        self.peers = Peers(SELF, lambda: self.image, self.connect, SeededChance(1))
        self.register(address)

    def register(self, address: tuple[str, int], epoch: int = 1) -> None:
        peer = BrokerImage(PEER, BrokerEpoch(epoch), *address, rack=None, version=epoch)
        self.image = ClusterImage(revision=epoch, brokers={PEER: peer})
        self.peers.follow(self.image)

    async def connect(self, address: Address) -> Transport:
        self.connects += 1
        return await connect_tcp(address)

    async def ask(self, purpose: str = "questions", timeout_s: float = 5.0) -> MetadataResponse:
        return await self.peers.ask(
            PEER, QUESTION, MetadataResponse, purpose=purpose, timeout_s=timeout_s
        )


@pytest.fixture
async def world(node: Node) -> AsyncIterator[World]:
    made = World(node.address)
    yield made
    made.peers.close()


async def test_many_questions_share_one_connection(world: World) -> None:
    answers = await asyncio.gather(*(world.ask() for _ in range(50)))

    assert {len(answer.brokers) for answer in answers} == {1}
    assert world.connects == 1


async def test_a_long_poll_holds_up_nobody_with_another_purpose(node: Node, world: World) -> None:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    fetch = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="none", partitions=[asked])]
    )
    poll = asyncio.create_task(
        world.peers.ask(PEER, fetch, FetchResponse, version=4, purpose="replication")
    )

    await world.ask()
    assert world.connects == 2
    poll.cancel()


async def test_who_is_not_registered_is_not_asked(world: World) -> None:
    with pytest.raises(PeerUnreachableError, match="node 9 cannot be asked: it is not registered"):
        await world.peers.ask(STRANGER, QUESTION, MetadataResponse)


async def test_a_peer_that_refuses_is_tried_later_and_later(world: World) -> None:
    world.register(("127.0.0.1", 1), epoch=2)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(4):
        with pytest.raises(PeerUnreachableError):
            await world.ask()

    assert world.connects == 4
    assert loop.time() - began_s > 0.8 * (0.02 + 0.04 + 0.08)


async def test_a_new_life_is_asked_at_once_and_who_waited_for_the_old_one_is_told(
    node: Node, world: World
) -> None:
    world.register(("127.0.0.1", 1), epoch=2)
    for _ in range(6):
        with pytest.raises(PeerUnreachableError):
            await world.ask()
    waiting = asyncio.create_task(world.ask())
    await asyncio.sleep(0)

    world.register(node.address, epoch=3)

    with pytest.raises(PeerUnreachableError, match="left or began a new life"):
        await waiting
    assert (await world.ask()).brokers


async def test_a_lost_connection_is_made_again(node: Node, world: World) -> None:
    await world.ask()
    world.register(node.address, epoch=2)
    await world.ask()

    assert world.connects == 2


async def test_a_silent_peer_is_given_up_in_time() -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    world = World(server.sockets[0].getsockname())
    with pytest.raises(PeerUnreachableError):
        await world.ask(timeout_s=0.1)
    world.peers.close()
    with pytest.raises(PeerUnreachableError, match="stopping"):
        await world.ask()
    server.close()


async def test_who_answers_nonsense_is_unreachable() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\x08nonsense")
        await writer.drain()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    world = World(server.sockets[0].getsockname())
    with pytest.raises(PeerUnreachableError):
        await world.ask()
    world.peers.close()
    server.close()


async def test_who_gives_up_asking_is_cancelled(world: World) -> None:
    world.register(("127.0.0.1", 1), epoch=2)
    for _ in range(6):
        with pytest.raises(PeerUnreachableError):
            await world.ask()
    waiting = asyncio.create_task(world.ask())
    await asyncio.sleep(0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_who_poses_is_told_where_there_is_a_connection(world: World) -> None:
    heard: asyncio.Queue[MetadataResponse | PeerUnreachableError] = asyncio.Queue()

    def pose() -> bool:
        return world.peers.pose(PEER, QUESTION, MetadataResponse.decode, heard.put_nowait)

    assert not pose(), "nobody was reached yet"
    await world.peers.reach(PEER)
    assert pose()
    assert isinstance(await heard.get(), MetadataResponse)
    assert pose()
    world.peers.close()

    assert isinstance(await heard.get(), PeerUnreachableError)

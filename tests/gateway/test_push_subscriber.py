"""A subscriber reads a real topic for itself, from a log that is slow."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from waystation.client.admin import Admin
from waystation.client.producer import Producer
from waystation.client.transport import connect_tcp
from waystation.filters.selecting import Filter
from waystation.gateway import push_subscriber
from waystation.gateway.clients import Clients
from waystation.gateway.push_events import SSE
from waystation.gateway.push_ids import resumed
from waystation.gateway.push_meters import PushMeters
from waystation.gateway.push_subscriber import Subscriber, Wanted
from waystation.gateway.push_tails import Tails
from waystation.gateway.reading import read_page
from waystation.telemetry.metrics import Registry


class Written:
    """A wire that keeps what is written."""

    on_lost = on_said = None
    is_open, is_paused = True, False

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, content: bytes) -> None:
        self.pieces.append(content)

    async def drained(self) -> None:
        """There is always room."""


@pytest.fixture
async def clients(bootstrap: str) -> AsyncIterator[Clients]:
    one = Clients(bootstrap, connect_tcp, waiting=10, message_bytes=1 << 20)
    yield one
    await one.close()


async def test_who_looks_for_long_says_how_far_it_has_got(
    bootstrap: str, clients: Clients, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a filter that means nothing for a while; whoever is cut off goes on from there."""

    async def slowly(*given: Any, **named: Any) -> Any:
        await asyncio.sleep(0.08)
        return await read_page(*given, **named)

    monkeypatch.setattr(push_subscriber, "read_page", slowly)
    async with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=0) as producer:
        await admin.create_topic(topic, 8)
        for partition in range(8):
            await producer.send(topic, "other", partition=partition)
    tails, wire = Tails(), Written()
    clients.on_close.append(tails.aclose)
    wanted = Wanted(
        await clients.topic(topic),
        None,
        dict.fromkeys(range(8), 0),
        "text",
        Filter("value = 'never'"),
        0.1,
    )
    subscriber = Subscriber(clients, tails, PushMeters(Registry()), wanted, SSE, wire)
    running = asyncio.ensure_future(subscriber.run())
    try:
        async with asyncio.timeout(20):
            while not any(_said(piece) == {1} for piece in wire.pieces):
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.wait([running])

    assert _said(wire.pieces[0]) == {0, 1}, "on its way already"


def _said(beat: bytes) -> set[int]:
    """The offsets that a heartbeat tells."""
    id_ = beat.decode().partition("id: ")[2].split("\n")[0]
    return set(resumed(id_).positions.values())

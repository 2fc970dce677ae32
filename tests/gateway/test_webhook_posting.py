"""What a node does with the answers of targets, and how it shares its room among them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.webhook_receiver import Receiver, Reply

from waystation.client.queue_lease import Hold, Lease
from waystation.client.queue_message import QueueMessage
from waystation.gateway.webhook_bodies import NewWebhook, defined
from waystation.gateway.webhook_delivery import Delivery
from waystation.gateway.webhook_posting import Poster
from waystation.gateway.webhook_targets import parse_networks
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.runtime.clock import SystemClock
from waystation.testing.process import BrokerFailedError, BrokerProcess


@pytest.fixture
async def poster() -> AsyncIterator[Poster]:
    """One with room for a single request beside the first of each webhook."""
    one = Poster(parse_networks(["127.0.0.0/8"]), clock=SystemClock(), under_way=1)
    yield one
    await one.aclose()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("\u00c2\u00b2", None),  # a two, raised: a digit, and no number
        ("-1", None),
        ("soon", None),
        ("9" * 40, None),
    ],
)
async def test_nonsense_beside_an_answer_does_not_spoil_it(
    poster: Poster, header: str, seconds: float | None
) -> None:
    with Receiver(lambda _: Reply(200, {"retry-after": header})) as receiver:
        told = await poster.post(receiver.url, b"{}", {}, 5)

    assert (told.status, told.error, told.retry_after_s) == (200, None, seconds)


async def test_a_webhook_has_room_for_one_request_however_many_others_hang(
    poster: Poster,
) -> None:
    with Receiver() as receiver:
        async with poster.room(is_first=True), poster.room(is_first=False):
            second = asyncio.create_task(_posted(poster, receiver.url, is_first=False))
            await asyncio.wait_for(_posted(poster, receiver.url, is_first=True), 5)
            assert not second.done(), "there is no more room"
        await asyncio.wait_for(second, 5)


async def _posted(poster: Poster, url: str, *, is_first: bool) -> None:
    async with poster.room(is_first=is_first):
        assert (await poster.post(url, b"{}", {}, 5)).status == 200


class Renewing:
    """A queue whose leader renews the locks of even offsets, and has lost the others."""

    async def extend(self, message: QueueMessage) -> None:
        if message.offset % 2 == 0:
            now = asyncio.get_running_loop().time()
            message.lease.extend(message.offset, now + 20)


async def test_nothing_is_posted_that_may_be_another_nodes_before_its_answer() -> None:
    wish = NewWebhook(name="w", topic="t", url="http://127.0.0.1/", timeout_ms=5_000)
    nothing: Any = None
    delivery = Delivery(
        defined(wish, "whsec_", 0),
        bootstrap="",
        connect=nothing,
        poster=nothing,
        figures=nothing,
        meter=nothing,
        clock=SystemClock(),
        member_id="node-1",
    )
    now = asyncio.get_running_loop().time()
    hold = Hold(nothing, TopicPartition("t", 0))
    long, short = Lease(hold, now + 20, {Offset(0)}), Lease(hold, now + 4, {Offset(1), Offset(2)})
    over = Lease(hold, now - 1, {Offset(4)})
    messages = [_message(0, long), _message(1, short), _message(2, short), _message(4, over)]
    queue: Any = Renewing()

    assert [one.offset for one in await delivery._held(queue, messages)] == [0, 2]


def _message(offset: int, lease: Lease) -> QueueMessage:
    return QueueMessage(None, b"", "t", 0, Offset(offset), Millis(0), (), 1, lease)


def test_a_file_of_authorities_that_is_none_is_told_when_the_node_starts(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate")
    for name in ("missing", "text"):
        options = {"webhook.ca.file": str(tmp_path / name)}
        broker = BrokerProcess(tmp_path / "data", http="127.0.0.1:0", options=options)
        with pytest.raises(BrokerFailedError, match=r"webhook\.ca\.file="):
            broker.start()

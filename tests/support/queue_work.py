"""Consumers of a queue that go on whatever happens to brokers, and a ledger of what came."""

from waystation import NotHeldError, Queue, QueueMessage
from waystation.client.queue_errors import SettlementUnknownError
from waystation.model.errors import WaystationError


class Ledger:
    """What was sent, what came, and what the broker has said is settled."""

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.settled: set[bytes] = set()
        self.unknown: set[bytes] = set()
        """Settled, or to come again: the answer was lost with the broker."""
        self.came_back: list[str] = []
        self.stories: dict[bytes, list[str]] = {}
        """Where each message stood whenever it came."""
        self.deliveries = 0
        self.kills = 0

    def note(self, message: QueueMessage) -> None:
        value = message.value or b""
        self.deliveries += 1
        self.unknown.discard(value)
        story = self.stories.setdefault(value, [])
        story.append(f"{message.id} for the {message.deliveries}. time")
        if value in self.settled:
            self.came_back.append(f"{value!r} after it was settled: {', '.join(story)}")

    @property
    def is_done(self) -> bool:
        return len(self.settled | self.unknown) == self.sent


async def work(name: str, bootstrap: str, ledger: Ledger, *, prefetch: int = 0) -> None:
    """Receive and acknowledge, whatever happens to the broker, until everything is settled."""
    async with Queue(
        name, bootstrap, prefetch_messages=prefetch, retry_backoff_max_ms=200
    ) as queue:
        while not ledger.is_done:
            try:
                messages = await queue.receive(7, 300)
            except WaystationError:
                continue
            values = {message.value or b"" for message in messages}
            for message in messages:
                ledger.note(message)
            try:
                await queue.ack(messages)
            except NotHeldError as error:
                refused = {(where.partition, offset) for where, offset, _ in error.refused}
                ledger.settled |= {
                    one.value or b""
                    for one in messages
                    if (one.partition, one.offset) not in refused
                }
            except SettlementUnknownError:
                ledger.unknown |= values
            else:
                ledger.settled |= values


async def drain(name: str, bootstrap: str, ledger: Ledger, patience_ms: int) -> None:
    """See that nothing is left but what nobody knew to be settled."""
    async with Queue(name, bootstrap) as queue:
        await queue.join()
        while left := await queue.receive(100, patience_ms):
            assert {one.value for one in left} <= ledger.unknown
            await queue.ack(left)
    assert not ledger.came_back, ledger.came_back
    assert ledger.deliveries >= ledger.sent

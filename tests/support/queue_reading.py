"""Reading from queues in tests."""

from waystation import Queue, QueueMessage

WAIT_MS = 20_000


async def received(queue: Queue, wanted: int) -> list[QueueMessage]:
    """So many messages, however they come."""
    messages: list[QueueMessage] = []
    while len(messages) < wanted:
        got = await queue.receive(wanted - len(messages), WAIT_MS)
        assert got, f"only {len(messages)} of {wanted} came"
        messages += got
    return messages


def values(messages: list[QueueMessage]) -> list[bytes]:
    """What they say, in the order of bytes."""
    return sorted(one.value or b"" for one in messages)

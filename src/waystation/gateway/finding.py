"""Messages of one key, found by the topic's index of keys (``client/find.py``).

A page begins at an offset, or behind one; it is complete if it reached the end of what could be
read.  Nothing else of the partition is read for it.  While the index is being built a page may end
before that, and be empty.
"""

from typing import TYPE_CHECKING, Final

from waystation.client.find import Finder, FoundPage
from waystation.gateway.problems import ProblemError, refusal
from waystation.model.errors import InvalidRequestError, WaystationError

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["find_page", "key_of"]

_BUSY_MS: Final = 5_000


def key_of(key: str | None, key_base64: bytes | None) -> bytes | None:
    """The key that two parameters give, of which one may be given."""
    if key is not None and key_base64 is not None:
        raise refusal(
            400,
            "invalid-parameter",
            "key and key_base64 exclude each other",
            field="key_base64",
            remedy="give one of them",
        )
    return key_base64 if key is None else key.encode()


async def find_page(
    clients: "Clients",
    topic: str,
    key: bytes,
    offset: int,
    *,
    limit: int,
    max_bytes: int,
    wait_ms: int,
    partition: int | None,
) -> FoundPage:
    """Messages of ``key`` from ``offset`` on; who waits borrows a router of its own."""
    try:
        finder = Finder(await clients.router(), topic)
        search = finder.page(
            key,
            offset=offset,
            limit=limit,
            max_bytes=max_bytes,
            partition=partition,
            busy_ms=_BUSY_MS,
        )
        page = await clients.promptly(topic, search)
        if page.messages or not page.complete or not wait_ms:
            return page
        async with clients.waiting() as router:
            waiting = Finder(router, topic).page(
                key,
                offset=max(offset, page.next_offset),
                limit=limit,
                max_bytes=max_bytes,
                wait_ms=wait_ms,
                partition=page.partition,
                topic_id=page.topic_id,
            )
            return await clients.promptly(topic, waiting, wait_ms=wait_ms)
    except InvalidRequestError as error:
        raise await _no_index(clients, topic, error) from None


async def _no_index(clients: "Clients", topic: str, error: WaystationError) -> Exception:
    """What to tell of a search that was refused: that the topic has no index, if it has none."""
    admin = await clients.admin()
    configs = await admin.describe_configs(topic)
    option = configs.get("index.keys")
    if option is not None and option.value == "true":
        return error
    return _unindexed(topic)


def _unindexed(topic: str) -> ProblemError:
    return refusal(
        409,
        "no-key-index",
        f"topic {topic} has no index of keys, so that its messages cannot be found by key",
        field="key",
        remedy='PATCH /v1/topics/{topic}/config with {"set": {"index.keys": "true"}}',
    )

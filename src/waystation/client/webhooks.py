"""Webhooks from Python: create, list, show, change, pause, test and delete.

Webhooks belong to the nodes' HTTP interface, so that this client, alone among all, speaks HTTP.
What they are and promise: ``docs/webhooks.md``.
"""

from typing import Literal, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from waystation.client.http_calls import HttpCalls
from waystation.client.webhook_descriptions import (
    SampleOutcome,
    Webhook,
    WebhookAndSecret,
    WebhookDetails,
)

__all__ = ["WebhookFields", "Webhooks"]

T = TypeVar("T")

_PATH = "/v1/webhooks"


class WebhookFields(TypedDict, total=False):
    """What a webhook can be told, when it is made and later."""

    secret: str | None
    """``None`` has one made."""
    where: str | None
    values: Literal["text", "json", "base64"]
    order: Literal["none", "key"]
    batch_size: int
    concurrency: int
    timeout_ms: int
    max_deliveries: int
    backoff_ms: int
    backoff_max_ms: int
    while_down: Literal["wait", "count"]
    dead_letter_topic: str


class NewWebhookFields(WebhookFields, total=False):
    """And what counts only when it is made."""

    begin: Literal["latest", "earliest"]
    paused: bool


class ChangedWebhookFields(WebhookFields, total=False):
    """And what counts only later."""

    url: str
    secret_grace_ms: int
    """For how long secrets that were replaced sign too."""


class _All(msgspec.Struct):
    webhooks: list[Webhook]


class Webhooks:
    """The webhooks of a cluster; an async context manager.

    ``http`` is where nodes serve HTTP, comma-separated: the first that can be reached is asked.
    What a node refuses is a ``CallRefusedError`` with the field and the remedy.
    """

    def __init__(self, http: str = "localhost:8090", *, timeout_ms: int = 60_000) -> None:
        self._calls = HttpCalls(http, timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._calls.close()

    async def create(
        self, name: str, topic: str, url: str, **fields: Unpack[NewWebhookFields]
    ) -> WebhookAndSecret:
        """Make a webhook, which delivers from now on; ``secret`` of the answer is shown once."""
        wanted = {"name": name, "topic": topic, "url": url, **fields}
        return _as(WebhookAndSecret, await self._calls.ask("POST", _PATH, wanted))

    async def all(self) -> list[Webhook]:
        """Every webhook, by name."""
        return _as(_All, await self._calls.ask("GET", _PATH)).webhooks

    async def get(self, name: str) -> WebhookDetails:
        """One of them: how it goes, what waits, and what was given up lately."""
        return _as(WebhookDetails, await self._calls.ask("GET", _path(name)))

    async def change(self, name: str, **fields: Unpack[ChangedWebhookFields]) -> WebhookAndSecret:
        """Change some fields; the others stay.  ``secret=None`` has a new one made."""
        return _as(WebhookAndSecret, await self._calls.ask("PATCH", _path(name), fields))

    async def pause(self, name: str) -> Webhook:
        """Deliver nothing until it is resumed; messages wait."""
        return _as(Webhook, await self._calls.ask("POST", f"{_path(name)}/pause"))

    async def resume(self, name: str) -> Webhook:
        """Deliver again."""
        return _as(Webhook, await self._calls.ask("POST", f"{_path(name)}/resume"))

    async def test(self, name: str) -> SampleOutcome:
        """Post a sample to the target, and tell what it answered."""
        return _as(SampleOutcome, await self._calls.ask("POST", f"{_path(name)}/test"))

    async def delete(self, name: str) -> None:
        """Forget it, with what it has delivered; its dead letters stay."""
        await self._calls.ask("DELETE", _path(name))


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"


def _as(kind: type[T], content: bytes) -> T:
    return msgspec.json.decode(content, type=kind)

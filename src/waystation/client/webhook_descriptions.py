"""Webhooks as they are told of over HTTP: the gateway writes these, ``webhooks.py`` reads them."""

from typing import Literal

import msgspec

__all__ = [
    "FormerSecret",
    "GivenUp",
    "SampleOutcome",
    "Webhook",
    "WebhookAndSecret",
    "WebhookDetails",
    "WebhookState",
    "WebhookStatus",
]

WebhookStatus = Literal["delivering", "failing", "paused", "creating"]


class WebhookState(msgspec.Struct, frozen=True):
    """How it goes, on all nodes together; what other nodes did is seconds old."""

    status: WebhookStatus
    delivered: int
    failed: int
    """Messages in requests that came to nothing; each is tried again, or given up."""
    given_up: int
    skipped: int
    """Messages that ``where`` does not mean."""
    last_delivered_ms: int | None
    failing_since_ms: int | None
    last_error: str | None
    last_error_ms: int | None


class FormerSecret(msgspec.Struct, frozen=True):
    """A secret that was replaced and still signs, beside the new one."""

    fingerprint: str
    until_ms: int


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook and how it goes; its secret is never shown."""

    name: str
    topic: str
    url: str
    secret_fingerprint: str
    """Tells secrets apart: the beginning of the SHA-256 of its bytes."""
    former_secrets: list[FormerSecret]
    """Those that still sign, too, the newest first."""
    where: str | None
    values: Literal["text", "json", "base64"]
    order: str
    batch_size: int
    concurrency: int
    timeout_ms: int
    max_deliveries: int
    backoff_ms: int
    backoff_max_ms: int
    while_down: str
    dead_letter_topic: str
    paused: bool
    created_ms: int
    group: str
    """The share group that knows what was delivered."""
    state: WebhookState


class GivenUp(msgspec.Struct, frozen=True):
    """A message that was given up, and why."""

    partition: int
    offset: int
    deliveries: int
    error: str
    """What the target said last."""
    at_ms: int


class WebhookDetails(Webhook, frozen=True, kw_only=True):
    """A webhook, how it goes, and what waits."""

    pending: int | None
    """Messages that wait to be delivered, also those that ``where`` may not mean; null if the
    topic cannot be asked."""
    dead_letters: int | None
    """Messages in the dead-letter topic."""
    recently_given_up: list[GivenUp]
    """The last few messages that were given up, and why; the newest last."""


class WebhookAndSecret(Webhook, frozen=True, kw_only=True):
    """A webhook that was just made or changed."""

    secret: str | None
    """The secret that was made for it, this once; null if you gave one, or nothing changed it."""


class SampleOutcome(msgspec.Struct, frozen=True):
    """What became of a test."""

    delivered: bool
    status: int | None
    error: str | None
    took_ms: int

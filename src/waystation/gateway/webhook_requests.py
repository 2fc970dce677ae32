"""What a webhook's request looks like: body, headers, and ids that stay over retries.

A message's id names the webhook, the topic by its own id, partition and offset: every try of one
message has the same, no other message has it, and who receives can drop what it has seen.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from waystation.client.message import Message
from waystation.client.queue_message import QueueMessage
from waystation.gateway.payloads import StoredHeader, shown
from waystation.gateway.webhook_definitions import Definition
from waystation.gateway.webhook_signing import key_of, signature
from waystation.model.ids import uuid_text
from waystation.records.record import Headers

__all__ = ["PushedMessage", "WebhookRequest", "sample_request", "webhook_request"]


class PushedMessage(msgspec.Struct, frozen=True):
    """A message as targets get it: as it is read over HTTP, with its id and topic."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    delivery: int
    """Which try this is: 1 the first time."""
    key: str | msgspec.UnsetType | None
    key_base64: bytes | msgspec.UnsetType
    value: object
    value_base64: bytes | msgspec.UnsetType
    headers: list[StoredHeader]


class WebhookRequest(NamedTuple):
    """What is posted."""

    body: bytes
    headers: dict[str, str]


def webhook_request(
    webhook: Definition, messages: Sequence[QueueMessage], now: int
) -> WebhookRequest:
    """The request for messages, signed: one as itself, several as ``{"messages": [...]}``."""
    pushed = [_pushed(webhook, one) for one in messages]
    if webhook.batch_size == 1:
        body, message_id = msgspec.json.encode(pushed[0]), pushed[0].id
    else:
        body = msgspec.json.encode({"messages": pushed})
        message_id = _id_of_many(webhook, [one.id for one in pushed])
    headers = _headers(webhook, message_id, body, now)
    headers["waystation-messages"] = str(len(pushed))
    if len(pushed) == 1:
        (one,) = pushed
        headers["waystation-partition"] = str(one.partition)
        headers["waystation-offset"] = str(one.offset)
        headers["waystation-delivery"] = str(one.delivery)
    return WebhookRequest(body, headers)


def sample_request(webhook: Definition, sample_id: str, now: int) -> WebhookRequest:
    """A request that looks like the others and stands for no message."""
    sample = PushedMessage(
        f"{webhook.name}.test.{sample_id}",
        webhook.topic,
        0,
        0,
        now,
        1,
        None,
        msgspec.UNSET,
        "this is a test",
        msgspec.UNSET,
        [],
    )
    body = msgspec.json.encode(sample if webhook.batch_size == 1 else {"messages": [sample]})
    headers = _headers(webhook, sample.id, body, now)
    return WebhookRequest(body, {**headers, "waystation-test": "true"})


def _headers(webhook: Definition, message_id: str, body: bytes, now: int) -> dict[str, str]:
    timestamp_s = now // 1_000
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(
            signature(key_of(one), message_id, timestamp_s, body) for one in webhook.secrets_at(now)
        ),
        "waystation-webhook": webhook.name,
        "waystation-topic": webhook.topic,
    }


def _pushed(webhook: Definition, one: QueueMessage) -> PushedMessage:
    headers: Headers = one.headers
    plain = Message(
        one.key, one.value, one.topic, one.partition, one.offset, one.timestamp, headers
    )
    (seen,) = shown([plain], webhook.values)
    return PushedMessage(
        f"{webhook.name}.{uuid_text(one.topic_id)}.{one.partition}.{one.offset}",
        one.topic,
        seen.partition,
        seen.offset,
        seen.timestamp_ms,
        one.deliveries,
        seen.key,
        seen.key_base64,
        seen.value,
        seen.value_base64,
        seen.headers,
    )


def _id_of_many(webhook: Definition, ids: Sequence[str]) -> str:
    return f"{webhook.name}.{sha256(' '.join(ids).encode()).hexdigest()[:32]}"

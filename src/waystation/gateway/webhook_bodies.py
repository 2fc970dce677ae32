"""What callers say of webhooks: the bodies that create and change them."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from waystation.gateway.payloads import Values
from waystation.gateway.routes import Params
from waystation.gateway.topics import TopicName
from waystation.gateway.webhook_definitions import Definition
from waystation.sharing.states import DELIVERIES_MAX

__all__ = ["NewWebhook", "WebhookChange", "WebhookName", "changed", "defined"]

_SECRET_GRACE_MS: Final = 86_400_000

WebhookName = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$", examples=["billing"]),
]
Url = Annotated[str, Meta(min_length=1, description="https:// or http://, a public address.")]
Secret = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=120,
        description="whsec_ and base64 of 24 to 64 bytes; one is made if none is given.",
    ),
]
SecretGrace = Annotated[
    int,
    Meta(
        ge=0,
        le=604_800_000,
        description="For how long secrets that were replaced sign too; a day if secret is given.",
    ),
]
Where = Annotated[
    str, Meta(min_length=1, max_length=4_096, description="Push only what an SQL condition means.")
]
Order = Annotated[
    Literal["none", "key"],
    Meta(description="key: messages of one key go one after the other, in their order."),
]
BatchSize = Annotated[int, Meta(ge=1, le=1_000, description="Messages per request.")]
Concurrency = Annotated[
    int, Meta(ge=1, le=64, description="Requests under way at a time, per node.")
]
Timeout = Annotated[
    int, Meta(ge=100, le=300_000, description="How long a request may take, answer and all.")
]
MaxDeliveries = Annotated[
    int, Meta(ge=1, le=DELIVERIES_MAX, description="Tries before a message is a dead letter.")
]
Backoff = Annotated[
    int, Meta(ge=0, le=86_400_000, description="Wait so long after the first failure, then twice.")
]
BackoffMax = Annotated[int, Meta(ge=0, le=86_400_000, description="The longest wait.")]
WhileDown = Annotated[
    Literal["wait", "count"],
    Meta(
        description="What becomes of messages while the target takes none: they wait, however "
        "often they were tried, or die of max_deliveries."
    ),
]


class NewWebhook(Params, frozen=True, kw_only=True):
    """A webhook to create."""

    name: WebhookName
    topic: TopicName
    url: Url
    secret: Secret | None = None
    begin: Annotated[
        Literal["latest", "earliest"],
        Meta(description="With what is sent from now on, or with all that the topic has."),
    ] = "latest"
    where: Where | None = None
    values: Annotated[
        Values, Meta(description="How values are written, as where messages are read.")
    ] = "text"
    order: Order = "none"
    batch_size: BatchSize = 1
    concurrency: Concurrency = 8
    timeout_ms: Timeout = 15_000
    max_deliveries: MaxDeliveries = 20
    backoff_ms: Backoff = 1_000
    backoff_max_ms: BackoffMax = 900_000
    while_down: WhileDown = "wait"
    dead_letter_topic: TopicName | None = None
    paused: bool = False


class WebhookChange(Params, frozen=True, kw_only=True):
    """What to change of a webhook; what is not named stays."""

    url: Url | msgspec.UnsetType = msgspec.UNSET
    secret: Annotated[
        Secret | msgspec.UnsetType | None, Meta(description="null has a new one made.")
    ] = msgspec.UNSET
    secret_grace_ms: SecretGrace | msgspec.UnsetType = msgspec.UNSET
    where: Where | msgspec.UnsetType | None = msgspec.UNSET
    values: Values | msgspec.UnsetType = msgspec.UNSET
    order: Order | msgspec.UnsetType = msgspec.UNSET
    batch_size: BatchSize | msgspec.UnsetType = msgspec.UNSET
    concurrency: Concurrency | msgspec.UnsetType = msgspec.UNSET
    timeout_ms: Timeout | msgspec.UnsetType = msgspec.UNSET
    max_deliveries: MaxDeliveries | msgspec.UnsetType = msgspec.UNSET
    backoff_ms: Backoff | msgspec.UnsetType = msgspec.UNSET
    backoff_max_ms: BackoffMax | msgspec.UnsetType = msgspec.UNSET
    while_down: WhileDown | msgspec.UnsetType = msgspec.UNSET
    dead_letter_topic: TopicName | msgspec.UnsetType = msgspec.UNSET

    def said(self) -> dict[str, Any]:
        """The fields that are named."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in named.items() if value is not msgspec.UNSET}


def changed(known: Definition, said: Mapping[str, Any], now: int) -> Definition:
    """What becomes of a webhook that shall have the fields that are said."""
    rest = dict(said)
    grace_ms = rest.pop("secret_grace_ms", _SECRET_GRACE_MS if "secret" in rest else None)
    if grace_ms is not None:
        known = known.with_secret(rest.pop("secret", known.secret), grace_ms, now)
    return msgspec.structs.replace(known, **rest)


def defined(new: NewWebhook, secret: str, now: int) -> Definition:
    """What is kept of a wish."""
    said = {name: getattr(new, name) for name in new.__struct_fields__ if name != "begin"}
    dead = new.dead_letter_topic or f"webhook.{new.name}.dead"
    return Definition(**{**said, "secret": secret, "dead_letter_topic": dead, "created_ms": now})

"""What is measured about webhooks, by webhook, on this node."""

from typing import Final, NamedTuple

from waystation.telemetry.metrics import Counter, Histogram, Kind, Registry

__all__ = ["WebhookMeter", "declare_meters", "forget_meter", "webhook_meter"]

_DELIVERED: Final = "waystation_webhook_delivered_total"
_FAILED: Final = "waystation_webhook_failed_total"
_DEAD: Final = "waystation_webhook_dead_total"
_SECONDS: Final = "waystation_webhook_request_seconds"
_DOCS: Final[dict[str, tuple[Kind, str]]] = {
    _DELIVERED: ("counter", "Messages that targets of webhooks took."),
    _FAILED: ("counter", "Messages in requests of webhooks that came to nothing."),
    _DEAD: ("counter", "Messages that webhooks gave up."),
    _SECONDS: ("histogram", "How long requests to targets of webhooks took."),
}


class WebhookMeter(NamedTuple):
    """The metrics of one webhook."""

    delivered: Counter
    failed: Counter
    dead: Counter
    seconds: Histogram


def declare_meters(registry: Registry) -> None:
    """Let who scrapes a node know of the metrics before there is a webhook."""
    for name, (kind, doc) in _DOCS.items():
        registry.computed(name, doc, kind, list)


def webhook_meter(registry: Registry, webhook: str) -> WebhookMeter:
    """The metrics of a webhook, which are made if need be."""
    delivered, failed, dead = (
        registry.counter(name, _DOCS[name][1], webhook=webhook)
        for name in (_DELIVERED, _FAILED, _DEAD)
    )
    seconds = registry.histogram(_SECONDS, _DOCS[_SECONDS][1], webhook=webhook)
    return WebhookMeter(delivered, failed, dead, seconds)


def forget_meter(registry: Registry, webhook: str) -> None:
    """The webhook is not delivered here any more."""
    for name in _DOCS:
        registry.forget(name, webhook=webhook)

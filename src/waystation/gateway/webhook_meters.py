"""What is measured about webhooks, by webhook."""

from waystation.telemetry.metrics import Registry

__all__ = ["WebhookMeter"]


class WebhookMeter:
    """The metrics of one webhook on this node."""

    __slots__ = ("dead", "delivered", "failed", "seconds")

    def __init__(self, registry: Registry, name: str) -> None:
        self.delivered = registry.counter(
            "waystation_webhook_delivered_total",
            "Messages that webhooks' targets took.",
            webhook=name,
        )
        self.failed = registry.counter(
            "waystation_webhook_failed_total",
            "Messages in requests of webhooks that came to nothing; each is tried again or dead.",
            webhook=name,
        )
        self.dead = registry.counter(
            "waystation_webhook_dead_total",
            "Messages that webhooks have given up.",
            webhook=name,
        )
        self.seconds = registry.histogram(
            "waystation_webhook_request_seconds",
            "How long requests to webhooks' targets took.",
            webhook=name,
        )

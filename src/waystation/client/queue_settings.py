"""The options of a queue's consumer, documented where they are declared."""

from dataclasses import dataclass

from waystation.client.options import ConnectionOptions, pick_settings
from waystation.client.settings import ConnectionSettings
from waystation.model.settings import option

__all__ = ["QueueOptions", "ReceivingSettings", "queue_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivingSettings:
    """How messages are acquired, and how soon what became of them is told."""

    prefetch_messages: int = option(
        0,
        at_least=0,
        at_most=100_000,
        doc="Acquire this many messages ahead of receive(). Raises throughput; but they are locked "
        "and count as delivered while they wait here, and what is still waiting at the end goes "
        "back with one delivery more. 0 acquires what receive() asks for and no more.",
    )
    fetch_max_wait_ms: int = option(
        500,
        at_least=0,
        doc="How long a broker may hold a request while its queues are empty.",
        kafka="fetch.max.wait.ms",
    )
    fetch_max_bytes: int = option(
        8 << 20,
        at_least=1,
        doc="The most one answer holds; a single larger batch still comes.",
        kafka="fetch.max.bytes",
    )
    ack_linger_ms: int = option(
        1,
        at_least=0,
        at_most=10_000,
        doc="Wait this long for more acknowledgements to go in the same request. Those that come "
        "while a request is under way go together in any case.",
    )
    batch_limit_bytes: int = option(
        256 << 20,
        at_least=1,
        doc="Refuse a batch that decompresses to more than this.",
    )
    member_id: str = option(
        "",
        doc="The name of this consumer in its group, which nobody else may have; a new one if "
        "empty. A process that was killed and comes back under its old name takes its own place, "
        "and nobody waits for its session to end.",
    )
    client_rack: str = option(
        "",
        doc="Where this consumer runs, as brokers name it by broker.rack.",
        kafka="client.rack",
    )


class QueueOptions(ConnectionOptions, total=False):
    """See ``ReceivingSettings``."""

    prefetch_messages: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    ack_linger_ms: int
    batch_limit_bytes: int
    member_id: str
    client_rack: str


def queue_settings(options: QueueOptions) -> tuple[ReceivingSettings, ConnectionSettings]:
    """A queue's own settings and its connections'."""
    return pick_settings(options, ReceivingSettings)

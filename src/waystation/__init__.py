"""Waystation: a distributed message queue that speaks the Kafka protocol.

The public Python API is here: ``Producer``, ``Consumer``, ``Queue``, ``Inbox``, ``Admin``,
``Webhooks`` and what they hand out.  Each is imported when it is first used, so that ``import
waystation`` costs nothing.
"""

from waystation.version import VERSION

TYPE_CHECKING = False  # what type checkers take for typing's, which would cost 20 ms to import
if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.consumer import Consumer
    from waystation.client.group_offsets import CommittedOffset
    from waystation.client.inbox import Inbox, InboxMessage, MessageGoneError
    from waystation.client.message import Message
    from waystation.client.outgoing import RecordMetadata
    from waystation.client.producer import Producer
    from waystation.client.queue import Queue
    from waystation.client.queue_errors import NotHeldError
    from waystation.client.queue_message import QueueMessage
    from waystation.client.queue_receipts import HeldMessage, Receipt, Receipts
    from waystation.client.transaction import Transaction
    from waystation.client.transactor import PreparedTransaction
    from waystation.client.webhooks import Webhooks
    from waystation.model.errors import WaystationError
    from waystation.model.ids import TopicPartition

__all__ = [
    "Admin",
    "CommittedOffset",
    "Consumer",
    "HeldMessage",
    "Inbox",
    "InboxMessage",
    "Message",
    "MessageGoneError",
    "NotHeldError",
    "PreparedTransaction",
    "Producer",
    "Queue",
    "QueueMessage",
    "Receipt",
    "Receipts",
    "RecordMetadata",
    "TopicPartition",
    "Transaction",
    "WaystationError",
    "Webhooks",
    "__version__",
]

__version__ = VERSION

_HOMES = {
    "Admin": "waystation.client.admin",
    "CommittedOffset": "waystation.client.group_offsets",
    "Consumer": "waystation.client.consumer",
    "HeldMessage": "waystation.client.queue_receipts",
    "Inbox": "waystation.client.inbox",
    "InboxMessage": "waystation.client.inbox",
    "Message": "waystation.client.message",
    "MessageGoneError": "waystation.client.inbox",
    "NotHeldError": "waystation.client.queue_errors",
    "PreparedTransaction": "waystation.client.transactor",
    "Producer": "waystation.client.producer",
    "Queue": "waystation.client.queue",
    "QueueMessage": "waystation.client.queue_message",
    "Receipt": "waystation.client.queue_receipts",
    "Receipts": "waystation.client.queue_receipts",
    "RecordMetadata": "waystation.client.outgoing",
    "TopicPartition": "waystation.model.ids",
    "Transaction": "waystation.client.transaction",
    "WaystationError": "waystation.model.errors",
    "Webhooks": "waystation.client.webhooks",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'waystation' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found

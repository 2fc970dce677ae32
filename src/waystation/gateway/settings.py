"""The options of the gateway."""

from dataclasses import dataclass

from waystation.gateway.webhook_targets import parse_networks
from waystation.model.errors import InvalidTopicError
from waystation.model.settings import option
from waystation.model.topics import check_topic_name

__all__ = ["INBOX_PARTITIONS_MAX", "GatewaySettings"]

INBOX_PARTITIONS_MAX = 1 << 16
"""Ids of messages have two bytes for the partition."""


def _check_topic(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicError as problem:
        raise ValueError(f"is no topic name: {problem}") from None


def _check_networks(texts: tuple[str, ...]) -> None:
    try:
        parse_networks(texts)
    except ValueError as problem:
        raise ValueError(f"is no list of networks: {problem}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Where the inbox (docs/inbox.md) keeps its messages, and which names the node answers to."""

    http_hosts: tuple[str, ...] = option(
        (),
        doc="Further names that HTTP answers to, comma-separated, without ports. On loopback it "
        "answers to names and addresses of loopback only, so that no page of a stranger can have "
        "a name of its own lead to this node (DNS rebinding). Beyond loopback it answers to any "
        "name while this is empty, and else to these, to addresses and to localhost.",
    )
    inbox_topic: str = option(
        "inbox",
        rule=_check_topic,
        doc="The topic that POST /send writes and GET /receive reads, made at the first use. The "
        "same on all nodes of a cluster.",
    )
    webhook_allow: tuple[str, ...] = option(
        (),
        rule=_check_networks,
        doc="Networks that webhooks may reach although they are not public, such as 10.1.0.0/16 or "
        "127.0.0.0/8, comma-separated. Whoever may create webhooks can make this node connect to "
        "anything in them. The same on all nodes of a cluster.",
    )
    webhook_ca_file: str = option(
        "",
        doc="A PEM file of authorities that sign webhooks' targets, beside those that the system "
        "trusts.",
    )
    inbox_partitions: int = option(
        16,
        at_least=1,
        at_most=INBOX_PARTITIONS_MAX,
        doc="How many partitions of the topic the inbox uses, for good: users are spread over so "
        "many, and ids of messages name theirs. Partitions added to the topic later are left "
        "alone. More let more brokers and disks work; each costs up to 4 MB of memory for the "
        "index of keys. The same on all nodes of a cluster.",
    )

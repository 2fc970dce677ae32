"""Where in the coordination store each fact about the cluster lives.

==================================  ========================================================
``cluster``                         the cluster's id, written once
``brokers/<node>``                  a running broker; leased, so it vanishes with the broker
``controller``                      who decides; leased
``topics/<name>``                   a topic's id and whole assignment: makes the topic exist
``partitions/<topic id>/<n>``       leader, epochs and sets of one partition
``views/<name>``                    a view: its topic, and what it shows of it
``configs/topic/<name>``            a topic's own options
``configs/broker/<node or default>``  options of one broker, or of all
``configs/group/<quoted id>``       options of one group; ids may hold any character
``reassignments/<topic id>/<n>``    which replicas a partition shall have instead
``leaving/<node>``                  a broker that wants to stop; leased
``drains/<node>``                   an operator wants the node to hold nothing
``ids/<kind>``                      counters: producer ids, broker and controller epochs
``webhooks/<name>``                 a webhook; the gateway's own, no part of the image
``webhook-figures/<name>/<node>``   what a node has delivered of it, likewise
==================================  ========================================================

Partition states are keyed by topic id, so those of a deleted topic never meet its namesake.
"""

from typing import Final
from urllib.parse import quote, unquote

from waystation.model.ids import NodeId, TopicId, uuid_text

CLUSTER: Final = "cluster"
CONTROLLER: Final = "controller"
PRODUCER_IDS: Final = "ids/producers"
BROKER_EPOCHS: Final = "ids/broker-epochs"
CONTROLLER_EPOCHS: Final = "ids/controller-epochs"
EVERY_BROKER: Final = "default"


def broker(node: NodeId) -> str:
    """A broker's registration."""
    return f"brokers/{node}"


def topic(name: str) -> str:
    """What makes a topic exist."""
    return f"topics/{name}"


def view(name: str) -> str:
    """What makes a view exist; views and topics share one space of names."""
    return f"views/{name}"


def partition(topic_id: TopicId, number: int) -> str:
    """A partition's state."""
    return f"partitions/{uuid_text(topic_id)}/{number}"


def reassignment(topic_id: TopicId, number: int) -> str:
    """Where a partition is on its way to."""
    return f"reassignments/{uuid_text(topic_id)}/{number}"


def leaving(node: NodeId) -> str:
    """A broker's wish to stop."""
    return f"leaving/{node}"


def drain(node: NodeId) -> str:
    """An operator's wish that a node hold nothing."""
    return f"drains/{node}"


def topic_config(name: str) -> str:
    """A topic's own options."""
    return f"configs/topic/{name}"


def group_config(group_id: str) -> str:
    """A group's own options."""
    # A tilde stands for the percent sign, which no store need take; a dot alone is no name.
    quoted = quote(group_id, safe="").replace("~", "%7E").replace(".", "%2E")
    return f"configs/group/{quoted.replace('%', '~')}"


def group_of(quoted: str) -> str:
    """The group whose options are kept under that name."""
    return unquote(quoted.replace("~", "%"))


def broker_config(name: str) -> str:
    """The options of the broker with that number, or of all: ``EVERY_BROKER``."""
    return f"configs/broker/{name}"

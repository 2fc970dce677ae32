"""What options belong to, by Kafka's numbers: topics, brokers and groups."""

from collections.abc import Mapping

from waystation.cluster.keys import EVERY_BROKER, group_config
from waystation.coordination.store import KEY_CHARACTERS_MAX
from waystation.model.errors import InvalidRequestError
from waystation.model.ids import NodeId

TOPIC = 2
BROKER = 4
GROUP = 32


def broker_named(name: str, node: NodeId) -> str:
    """The key of a broker's options: its number, or all brokers if no name is given.

    Another broker's options are its own to change: clients send those requests to it.
    """
    if name == "":
        return EVERY_BROKER
    if name != str(node):
        raise InvalidRequestError(f"this is broker {node}: ask broker {name!r} itself")
    return name


def group_named(name: str) -> str:
    """The id of a group that options are of."""
    if name == "":
        raise InvalidRequestError("the group id is empty: options are those of one group")
    if len(group_config(name)) > KEY_CHARACTERS_MAX:
        raise InvalidRequestError(
            f"a group id of {len(name)} characters is too long to have options of its own: "
            f"{KEY_CHARACTERS_MAX - len(group_config(''))} plain characters may be"
        )
    return name


def check_values(options: Mapping[str, str | None]) -> None:
    """Refuse options that are to be set to nothing: deleting one is said otherwise."""
    missing = [name for name, value in options.items() if value is None]
    if missing:
        raise InvalidRequestError(f"no value for {', '.join(missing)}")


def unknown_kind(resource_type: int) -> InvalidRequestError:
    """For anything that has no options here."""
    return InvalidRequestError(
        f"resource type {resource_type} has no options here; topics are {TOPIC}, brokers "
        f"{BROKER}, groups {GROUP}"
    )

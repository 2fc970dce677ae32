"""How fast replicas are copied while they move: Kafka's options, set before and removed after.

The brokers that take part get a rate, and the topics a list of the replicas it is for: those
that are copied from and those that are copied to.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.model.ids import NodeId, TopicPartition

__all__ = ["throttle", "unthrottle"]

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_FROM = "leader.replication.throttled.replicas"
_TO = "follower.replication.throttled.replicas"


async def throttle(
    admin: "Admin",
    moves: "Mapping[TopicPartition, tuple[Iterable[NodeId], Iterable[NodeId]]]",
    bytes_per_second: int,
) -> None:
    """Let each move, from some brokers to others, take no more than that on each of them."""
    sources: dict[str, list[str]] = defaultdict(list)
    sinks: dict[str, list[str]] = defaultdict(list)
    involved: dict[int, None] = {}
    for (topic, number), (now, target) in moves.items():
        old = list(now)
        new = [node for node in target if node not in old]
        involved.update(dict.fromkeys([*old, *new]))
        sources[topic] += [f"{number}:{node}" for node in old]
        sinks[topic] += [f"{number}:{node}" for node in new]
    alive = {one.node for one in (await admin.describe_cluster()).brokers}
    for node in involved:
        if node in alive:
            rates = dict.fromkeys(_RATES, str(bytes_per_second))
            await admin.alter_configs(broker=node, set=rates)
    for topic in sources:
        there = await admin.describe_configs(topic)
        wanted = {_FROM: sources[topic], _TO: sinks[topic]}
        options = {
            name: ",".join(dict.fromkeys([*_listed(there[name].value), *more]))
            for name, more in wanted.items()
            if more
        }
        await admin.alter_configs(topic, set=options)


async def unthrottle(admin: "Admin", topics: Iterable[str]) -> list[str]:
    """Remove what ``throttle`` set, of topics in which nothing moves any more; those that had it.

    Rates go with the last of them.
    """
    moving = {name for name, _ in await admin.list_reassignments()}
    freed = []
    for topic in topics:
        if topic in moving:
            continue
        there = await admin.describe_configs(topic)
        if any(_listed(there[name].value) for name in (_FROM, _TO)):
            await admin.alter_configs(topic, unset=(_FROM, _TO))
            freed.append(topic)
    if freed and not moving:
        for one in (await admin.describe_cluster()).brokers:
            await admin.alter_configs(broker=one.node, unset=_RATES)
    return freed


def _listed(text: str | None) -> list[str]:
    return [one for one in (text or "").split(",") if one]

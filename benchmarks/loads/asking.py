"""What is asked of a cluster, ours or Kafka's: topics where we want them, throttles, moves."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from benchmarks.loads.librdkafka import LoadError
from waystation import Admin
from waystation.client.metadata import PartitionView
from waystation.model.errors import WaystationError
from waystation.runtime.loops import run

T = TypeVar("T")
_LOOK_EVERY_S = 0.2
_ROLES = ("leader", "follower")


class Asking:
    """A cluster's administrator; every question has a connection of its own."""

    def __init__(self, bootstrap: str, nodes: Sequence[int]) -> None:
        self._bootstrap = bootstrap
        self._nodes = tuple(nodes)

    def create_on(self, topic: str, partitions: int, replicas: Sequence[int]) -> None:
        """A topic whose partitions are all led by the first of ``replicas``, and in sync."""
        where = dict.fromkeys(range(partitions), replicas)
        configs = _all_but_one(len(replicas))
        self._ask(lambda admin: admin.create_topic(topic, assignments=where, configs=configs))
        self.until_in_sync(topic, replicas)

    def create(self, topic: str, partitions: int, factor: int) -> None:
        """A topic that the cluster places as it likes, all replicas in sync."""
        configs = _all_but_one(factor)
        self._ask(
            lambda admin: admin.create_topic(
                topic, partitions, replication_factor=factor, configs=configs
            )
        )
        self._until(
            lambda: all(len(one.in_sync) == factor for one in self.partitions(topic)),
            f"{topic} in sync",
            120.0,
        )

    def until_in_sync(self, topic: str, nodes: Sequence[int], within_s: float = 120.0) -> float:
        """Wait until exactly ``nodes`` are in sync for every partition; how long it took."""
        return self._until(
            lambda: all(set(one.in_sync) == set(nodes) for one in self.partitions(topic)),
            f"{topic} in sync on {list(nodes)}",
            within_s,
        )

    def until_moved(self, topic: str, nodes: Sequence[int], within_s: float) -> float:
        """Wait until ``nodes`` and nobody else hold every partition."""
        return self._until(
            lambda: all(set(one.replicas) == set(nodes) for one in self.partitions(topic)),
            f"{topic} moved to {list(nodes)}",
            within_s,
        )

    def partitions(self, topic: str) -> tuple[PartitionView, ...]:
        """Who holds and leads the partitions, by number."""
        return self._ask(lambda admin: admin.describe_topic(topic)).partitions

    def throttle(self, topic: str, bytes_per_s: int | None) -> None:
        """Let replicas of the topic that are not in sync be copied no faster, at either end."""
        lists = {f"{role}.replication.throttled.replicas": "*" for role in _ROLES}
        rates = {f"{role}.replication.throttled.rate": str(bytes_per_s) for role in _ROLES}

        async def change(admin: Admin) -> None:
            for node in self._nodes:
                if bytes_per_s is None:
                    await admin.alter_configs(broker=node, unset=rates)
                else:
                    await admin.alter_configs(broker=node, set=rates)
            if bytes_per_s is None:
                await admin.alter_configs(topic, unset=lists)
            else:
                await admin.alter_configs(topic, set=lists)

        self._ask(change)

    def move(self, topic: str, replicas: Sequence[int]) -> None:
        """Begin to move partition 0 to other brokers."""
        told = self._ask(lambda admin: admin.alter_reassignments({(topic, 0): replicas}))
        for partition, refused in told.items():
            if refused is not None:
                raise LoadError(f"{partition} is not moved: {refused}")

    def delete(self, topic: str) -> None:
        """Delete a topic, so that its space is free again."""
        self._ask(lambda admin: admin.delete_topic(topic))

    def _until(self, true: Callable[[], bool], what: str, within_s: float) -> float:
        began = time.monotonic()
        while not self._holds(true):
            if time.monotonic() - began > within_s:
                raise LoadError(f"not within {within_s:.0f} s: {what}")
            time.sleep(_LOOK_EVERY_S)
        return time.monotonic() - began

    def _holds(self, true: Callable[[], bool]) -> bool:
        try:
            return true()
        except WaystationError:  # nobody can tell yet
            return False

    def _ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        async def asking() -> T:
            async with Admin(self._bootstrap) as admin:
                return await question(admin)

        return run(asking())


def _all_but_one(replicas: int) -> dict[str, str]:
    """One replica may be away, as long as that is not all of them."""
    return {"min.insync.replicas": str(max(1, replicas - 1))}

"""What administrators ask of topics and options: decide, write, wait until it is done here.

The rules are in ``cluster/``; this file only brings decisions to the store.  Each subject of a
request has its own outcome: one bad topic spoils no other.

A broker that slept for longer than its lease lasts is not registered when it wakes, and is again
a moment later.  Replicas are not placed in between: there would be no broker to hold them.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from waystation.broker.view import ClusterView, Decide
from waystation.cluster.changes import Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.internal_topics import factor_now
from waystation.cluster.topics import (
    TopicDefaults,
    TopicPlan,
    TopicSpec,
    add_partitions,
    create_topics,
    delete,
)
from waystation.filters.selecting import Filter
from waystation.model.errors import StoreUnavailableError, WaystationError
from waystation.model.ids import NodeId, TopicId

T = TypeVar("T")
Outcomes = dict[str, TopicPlan | WaystationError]

_BACK_WITHIN_S = 5.0


class _AwayError(Exception):
    """The broker that decides is not registered at the moment."""


class Topics:
    """Changes to the cluster's topics, through one broker."""

    __slots__ = ("_defaults", "_new_id", "_node", "_view", "after", "along", "check")

    def __init__(
        self,
        view: ClusterView,
        defaults: Callable[[], TopicDefaults],
        new_id: Callable[[], TopicId],
        node: NodeId,
    ) -> None:
        self._view = view
        self._node = node
        self._defaults = defaults
        self._new_id = new_id
        self.along: Callable[[ClusterImage, str], list[Changes]] = lambda _image, _name: []
        """What goes before a topic that is deleted: the place where its messages wait."""
        self.check: Callable[[ClusterImage, Changes], None] = lambda _image, _changes: None
        """Refuses what would make a topic that cannot be as it is wanted."""
        self.after: Callable[[], Awaitable[None]] = _nothing
        """What has to be done before somebody who changed topics is answered."""

    async def create(self, specs: Sequence[TopicSpec], *, validate_only: bool = False) -> Outcomes:
        """Make topics; their partitions can be written to when this returns."""

        def decide(image: ClusterImage) -> tuple[Outcomes, Iterable[Changes]]:
            outcomes = create_topics(image, specs, self._defaults(), self._new_id, Filter)
            outcomes = {name: self._checked(image, one) for name, one in outcomes.items()}
            plans = [one for one in outcomes.values() if isinstance(one, TopicPlan)]
            return outcomes, [] if validate_only else [plan.changes for plan in plans]

        try:
            outcomes = await self._place(decide)
        except StoreUnavailableError as error:
            return {spec.name: error for spec in specs}
        await self.after()
        return outcomes

    def _checked(
        self, image: ClusterImage, plan: TopicPlan | WaystationError
    ) -> TopicPlan | WaystationError:
        try:
            if isinstance(plan, TopicPlan):
                self.check(image, plan.changes)
        except WaystationError as refusal:
            return refusal
        return plan

    def factor_now(self, wanted: int) -> int:
        """How many of ``wanted`` replicas of a topic can be apart at the moment."""
        share = self._defaults().share_machines
        return factor_now(self._view.image, wanted, share_machines=share)

    async def delete(self, name: str) -> None:
        """Let a topic and all its records be gone, or a view, which has none."""

        def decide(image: ClusterImage) -> tuple[None, Iterable[Changes]]:
            return None, [*self.along(image, name), delete(image, name)]

        await self._view.change(decide)

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[NodeId]] | None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Let a topic have ``count`` partitions."""

        def decide(image: ClusterImage) -> tuple[None, Iterable[Changes]]:
            share = self._defaults().share_machines
            changes = add_partitions(image, name, count, assignments, share_machines=share)
            return None, [] if validate_only else [changes]

        await self._place(decide)
        await self.after()

    async def configure(
        self, decide: Callable[[ClusterImage], Changes], *, validate_only: bool = False
    ) -> None:
        """Carry out one of the decisions of ``cluster/configs.py``."""

        def decide_all(image: ClusterImage) -> tuple[None, Iterable[Changes]]:
            changes = decide(image)
            self.check(image, changes)
            return None, [] if validate_only else [changes]

        await self._view.change(decide_all)
        await self.after()

    async def _place(self, decide: Decide[T]) -> T:
        """Carry out what needs brokers, once this one is among them."""

        def with_itself(image: ClusterImage) -> tuple[T, Iterable[Changes]]:
            if self._node not in image.brokers:
                raise _AwayError
            return decide(image)

        try:
            return await self._view.change(with_itself)
        except _AwayError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BACK_WITHIN_S):
                    await self._view.until(lambda: self._node in self._view.image.brokers)
            return await self._view.change(decide)


async def _nothing() -> None:
    """Nothing has to be done."""

"""What a deleted webhook leaves behind, and how it goes: group, the group's options, figures.

A group can be deleted once all nodes have left it, and a node that was killed is a member for some
seconds more.  So a definition is first marked as leaving, which ends its deliveries and its name in
all lists, and is forgotten last:

1. what is marked goes, whichever node dies meanwhile: each node looks after what it has claimed,
   and takes over what nobody has for a while;
2. one node at a time works at it, and nobody gets the name before it is done: otherwise a deletion
   that was late could hit the group of a namesake.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from waystation.gateway.webhook_definitions import Claim, Definition
from waystation.model.errors import GroupNotFoundError, WaystationError
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.gateway.webhook_store import WebhookStore

__all__ = ["Leavings", "delete_group"]

_CLAIM_MS: Final = 30_000
_TRY_S: Final = 10.0
"""Shorter than a claim lasts: who has lost one does nothing any more."""
_AGAIN_S, _AGAIN_MOST_S = 0.5, 5.0
_TELL_AFTER: Final = 6
_LOOK_AGAIN_S: Final = 0.05

_events = get_logger("webhooks")


class Leavings:
    """The webhooks that are being forgotten, as one node helps with it."""

    def __init__(
        self,
        store: "WebhookStore",
        node: int,
        admin: "Callable[[], Awaitable[Admin]]",
        clock: Clock,
    ) -> None:
        self._store, self._node, self._admin, self._clock = store, node, admin, clock
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    def claim(self) -> Claim:
        """That this node will see to it from now on."""
        return Claim(self._node, self._clock.now() + _CLAIM_MS)

    def see_to(self, name: str) -> "asyncio.Task[None]":
        """Let a webhook that is marked go, however long it takes; ends when it is forgotten."""
        task = self._under_way.get(name)
        if task is None or task.done():
            task = self._tasks.spawn(self._see_to(name), f"webhook-{name}-leaving")
            self._under_way[name] = task
            task.add_done_callback(lambda _: self._under_way.pop(name, None))
        return task

    async def aclose(self) -> None:
        """Leave the rest to the other nodes, or to this one's next life."""
        await self._tasks.aclose()

    async def _see_to(self, name: str) -> None:
        pause_s, in_vain = _AGAIN_S, 0
        while True:
            try:
                if await self._is_forgotten(name):
                    return
            except (WaystationError, TimeoutError) as error:
                in_vain += 1
                if in_vain == _TELL_AFTER:
                    _events.warning("webhook.not.gone.yet", webhook=name, reason=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_MOST_S)

    async def _is_forgotten(self, name: str) -> bool:
        """One try; what raises is tried again."""
        kept = await self._store.leaving(name)
        if kept is None:
            return True
        claim = kept.definition.leaving
        assert claim is not None, f"{name} is listed as leaving"
        if claim.node != self._node and claim.until_ms > self._clock.now():
            return False
        version = await self._store.claim(kept, self.claim())
        if version is None:
            return False
        async with asyncio.timeout(_TRY_S):
            await _tear_down(await self._admin(), kept.definition)
        await self._store.forget(name, version)
        _events.info("webhook.gone", webhook=name)
        return True


async def _tear_down(admin: "Admin", webhook: Definition) -> None:
    """Delete the group, if all nodes have left it, and what it was told."""
    await delete_group(admin, webhook.group, _AGAIN_S)
    await admin.alter_configs(group=webhook.group, unset=webhook.group_configs())


async def delete_group(admin: "Admin", group: str, within_s: float) -> None:
    """Delete a group if it is there; wait so long for its members to leave."""
    ends_at = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            await admin.delete_groups(group)
        except GroupNotFoundError:
            return
        except WaystationError:
            if asyncio.get_running_loop().time() > ends_at:
                raise
            await asyncio.sleep(_LOOK_AGAIN_S)
        else:
            return

"""Where webhooks are kept: in the coordination store, beside the cluster's other metadata.

1. A change compares the version it was decided on, so that two nodes never overwrite each other.
2. Every node watches, and hears of a change within moments.  While the store is away, what was
   known last goes on.
3. Secrets are in the store and nowhere else: no topic and no request of the Kafka protocol
   shows them.

==========================  ==============================================================
``webhooks/<name>``         a definition
``webhook-figures/<node>``  what one node has delivered, failed at, and why, by webhook
==========================  ==============================================================
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from waystation.coordination.store import ABSENT, CoordinationStore, Versioned
from waystation.gateway.webhook_definitions import Definition
from waystation.gateway.webhook_figures import Figures
from waystation.model.errors import CompactedError, StoreUnavailableError
from waystation.telemetry.logs import get_logger

__all__ = ["WEBHOOKS_MOST", "WebhookStore"]

WEBHOOKS_MOST: Final = 200
_DEFINITIONS, _FIGURES = "webhooks/", "webhook-figures/"
_TRIES: Final = 10
_PAUSE_S: Final = 0.5

_events = get_logger("webhooks")
_definition: Final = msgspec.json.Decoder(Definition)
_figures: Final = msgspec.json.Decoder(dict[str, Figures])


class Kept(NamedTuple):
    """A definition and the version to compare."""

    definition: Definition
    version: int


class WebhookStore:
    """Reads and changes definitions for one node."""

    def __init__(self, store: CoordinationStore, node: int) -> None:
        self._store = store
        self._figures_key = f"{_FIGURES}{node}"

    async def all(self) -> dict[str, Definition]:
        """Every webhook by name."""
        return (await self._read())[0]

    async def find(self, name: str) -> Kept:
        """One of them; a problem, if there is none of that name."""
        item = (await self._store.get(_DEFINITIONS + name)).items.get(_DEFINITIONS + name)
        if item is None:
            raise _unknown(name)
        return Kept(_definition.decode(item.value), item.version)

    async def add(self, new: Definition) -> None:
        """Keep a new one; a problem, if its name is taken."""
        if len(await self.all()) >= WEBHOOKS_MOST:
            raise _refusal(
                409,
                "too-many-webhooks",
                f"there are {WEBHOOKS_MOST} webhooks already",
                field=None,
                remedy="delete one that is not needed",
            )
        if not await self._put(new, ABSENT):
            raise _refusal(
                409,
                "webhook-exists",
                f"there is a webhook {new.name} already",
                field="name",
                remedy="choose another name, PATCH it, or delete it",
            )

    async def change(self, name: str, decide: Callable[[Definition], Definition]) -> Definition:
        """Let ``decide`` make another of it; again, if somebody else was faster."""
        for _ in range(_TRIES):
            known, version = await self.find(name)
            wanted = decide(known)
            if wanted == known or await self._put(wanted, version):
                return wanted
        raise _busy(name)

    async def delete(self, name: str) -> Definition:
        """Keep it no longer."""
        for _ in range(_TRIES):
            known, version = await self.find(name)
            key = _DEFINITIONS + name
            if (await self._store.txn({key: version}, {}, [key])).succeeded:
                return known
        raise _busy(name)

    async def follow(self, tell: Callable[[dict[str, Definition]], None]) -> None:
        """Tell of all webhooks, now and whenever one changes, for as long as the store is open."""
        while True:
            try:
                known, revision = await self._read()
            except StoreUnavailableError as error:
                _events.warning("webhooks.not.read", reason=str(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            tell(known)
            watch = self._store.watch(_DEFINITIONS, revision)
            try:
                async for change in watch:
                    for key in change.deletes:
                        known.pop(key.removeprefix(_DEFINITIONS), None)
                    known |= _decoded(change.puts)
                    tell(known)
                return
            except CompactedError:
                continue
            finally:
                watch.close()

    async def publish(self, figures: dict[str, Figures]) -> None:
        """Let other nodes know what this one has done."""
        await self._store.txn({}, {self._figures_key: msgspec.json.encode(figures)})

    async def own_figures(self) -> dict[str, Figures]:
        """What this node has published in an earlier life."""
        found = (await self._store.get(self._figures_key)).items.get(self._figures_key)
        return {} if found is None else _figures.decode(found.value)

    async def figures_of_others(self) -> list[dict[str, Figures]]:
        """What all other nodes have published."""
        found = (await self._store.get(_FIGURES)).items
        return [
            _figures.decode(one.value) for key, one in found.items() if key != self._figures_key
        ]

    async def _read(self) -> tuple[dict[str, Definition], int]:
        snapshot = await self._store.get(_DEFINITIONS)
        return _decoded(snapshot.items), snapshot.revision

    async def _put(self, definition: Definition, version: int) -> bool:
        key = _DEFINITIONS + definition.name
        done = await self._store.txn({key: version}, {key: msgspec.json.encode(definition)})
        return done.succeeded


def _decoded(items: Mapping[str, Versioned]) -> dict[str, Definition]:
    """Definitions by name; one that only another version understands is left to that."""
    found = {}
    for key, item in items.items():
        try:
            definition = _definition.decode(item.value)
        except msgspec.ValidationError as error:
            _events.warning("webhook.not.understood", key=key, reason=str(error))
        else:
            found[definition.name] = definition
    return found


def _unknown(name: str) -> Exception:
    return _refusal(
        404,
        "unknown-webhook",
        f"there is no webhook {name}",
        field="name",
        remedy="GET /v1/webhooks lists those there are",
    )


def _busy(name: str) -> Exception:
    return _refusal(
        503, "busy", f"others keep changing webhook {name}", field="name", remedy="try again"
    )


def _refusal(status: int, kind: str, detail: str, *, field: str | None, remedy: str) -> Exception:
    # Imported when it is needed: a node that nobody calls need not know of problems.
    from waystation.gateway.problems import refusal

    return refusal(status, kind, detail, field=field, remedy=remedy)

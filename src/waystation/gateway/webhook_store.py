"""Where webhooks are kept: in the coordination store, beside the cluster's other metadata.

1. A change compares the version it was decided on, so that two nodes never overwrite each other.
2. Every node watches, and hears of a change within moments.  While the store is away, what was
   known last goes on.
3. Secrets are in the store and nowhere else: no topic and no request of the Kafka protocol
   shows them.

=================================  =======================================================
``webhooks/<name>``                a definition, also of one that is being forgotten
``webhook-figures/<name>/<node>``  what one node has delivered, failed at, and why
=================================  =======================================================
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from waystation.coordination.store import ABSENT, CoordinationStore, Versioned
from waystation.gateway.webhook_definitions import Claim, Definition
from waystation.gateway.webhook_figures import Figures
from waystation.model.errors import CompactedError, StoreUnavailableError
from waystation.telemetry.logs import get_logger

__all__ = ["WEBHOOKS_MOST", "WebhookStore"]

WEBHOOKS_MOST: Final = 200
_DEFINITIONS, _FIGURES = "webhooks/", "webhook-figures/"
_TRIES: Final = 10
_PAUSE_S: Final = 0.5
_NAMESAKE_GONE_S: Final = 20.0
"""How long a new webhook waits for its name: nodes that were killed are members for 9 s."""
_LOOK_AGAIN_S: Final = 0.05
_TOGETHER: Final = 40
"""Figures of how many webhooks go in one transaction: at most 20 KB each, of its 900 KB."""

_events = get_logger("webhooks")
_definition: Final = msgspec.json.Decoder(Definition)
_figures: Final = msgspec.json.Decoder(Figures)
_encoded: Final = msgspec.json.Encoder().encode


class Kept(NamedTuple):
    """A definition and the version to compare."""

    definition: Definition
    version: int


class WebhookStore:
    """Reads and changes definitions for one node."""

    def __init__(self, store: CoordinationStore, node: int) -> None:
        self._store = store
        self._node = str(node)

    async def all(self) -> dict[str, Definition]:
        """Every webhook by name."""
        known, _ = await self._read()
        return {name: one for name, one in known.items() if one.leaving is None}

    async def find(self, name: str) -> Kept:
        """One of them; a problem, if there is none of that name."""
        kept = await self._find(name)
        if kept is None or kept.definition.leaving is not None:
            raise _unknown(name)
        return kept

    async def add(self, new: Definition) -> None:
        """Keep a new one; a problem, if its name is taken, or not free in time."""
        if len((await self._read())[0]) >= WEBHOOKS_MOST:
            raise _refusal(
                409,
                "too-many-webhooks",
                f"there are {WEBHOOKS_MOST} webhooks already",
                field=None,
                remedy="delete one that is not needed",
            )
        ends_at = asyncio.get_running_loop().time() + _NAMESAKE_GONE_S
        while not await self._put(new, ABSENT):
            if await self.leaving(new.name) is None:
                raise _taken(new.name, "there is a webhook {name} already")
            if asyncio.get_running_loop().time() > ends_at:
                raise _taken(new.name, "webhook {name} is being deleted, and not gone yet")
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def change(self, name: str, decide: Callable[[Definition], Definition]) -> Definition:
        """Let ``decide`` make another of it; again, if somebody else was faster."""
        for _ in range(_TRIES):
            known, version = await self.find(name)
            wanted = decide(known)
            if wanted == known or await self._put(wanted, version):
                return wanted
        raise _busy(name)

    async def delete(self, name: str, claim: Claim) -> Definition:
        """Mark it as leaving, for ``claim`` to see to the rest."""
        for _ in range(_TRIES):
            known, version = await self.find(name)
            if await self._put(known.left_by(claim), version):
                return known
        raise _busy(name)

    async def leaving(self, name: str) -> Kept | None:
        """One that was deleted and is not gone yet."""
        kept = await self._find(name)
        return None if kept is None or kept.definition.leaving is None else kept

    async def claim(self, kept: Kept, claim: Claim) -> int | None:
        """Say who sees to one that leaves; its new version, ``None`` if somebody was faster."""
        key = _DEFINITIONS + kept.definition.name
        value = _encoded(kept.definition.left_by(claim))
        done = await self._store.txn({key: kept.version}, {key: value})
        return done.versions[key] if done.succeeded else None

    async def forget(self, name: str, version: int) -> None:
        """Keep nothing of it any more; its name is free."""
        figures = list((await self._store.get(f"{_FIGURES}{name}/")).items)
        key = _DEFINITIONS + name
        for at in range(0, len(figures), _TOGETHER):
            await self._store.txn({key: version}, {}, figures[at : at + _TOGETHER])
        await self._store.txn({key: version}, {}, [key])

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

    async def publish(self, figures: Mapping[str, Figures]) -> None:
        """Let other nodes know what this one has done for webhooks."""
        puts = {self._figures_key(name): _encoded(one) for name, one in figures.items()}
        keys = list(puts)
        for at in range(0, len(keys), _TOGETHER):
            await self._store.txn({}, {key: puts[key] for key in keys[at : at + _TOGETHER]})

    async def own_figures(self) -> dict[str, Figures]:
        """What this node has published in an earlier life, by webhook."""
        found = await self.figures()
        return {name: nodes[self._node] for name, nodes in found.items() if self._node in nodes}

    async def figures(self, name: str | None = None) -> dict[str, dict[str, Figures]]:
        """What nodes have published, of all webhooks or of one: by webhook, then by node."""
        below = _FIGURES if name is None else f"{_FIGURES}{name}/"
        found: dict[str, dict[str, Figures]] = {}
        for key, item in (await self._store.get(below)).items.items():
            webhook, _, node = key.removeprefix(_FIGURES).partition("/")
            found.setdefault(webhook, {})[node] = _figures.decode(item.value)
        return found

    def _figures_key(self, name: str) -> str:
        return f"{_FIGURES}{name}/{self._node}"

    async def _find(self, name: str) -> Kept | None:
        item = (await self._store.get(_DEFINITIONS + name)).items.get(_DEFINITIONS + name)
        return None if item is None else Kept(_definition.decode(item.value), item.version)

    async def _read(self) -> tuple[dict[str, Definition], int]:
        snapshot = await self._store.get(_DEFINITIONS)
        return _decoded(snapshot.items), snapshot.revision

    async def _put(self, definition: Definition, version: int) -> bool:
        key = _DEFINITIONS + definition.name
        done = await self._store.txn({key: version}, {key: _encoded(definition)})
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


def _taken(name: str, why: str) -> Exception:
    return _refusal(
        409,
        "webhook-exists",
        why.format(name=name),
        field="name",
        remedy="choose another name, PATCH it, or delete it and try again",
    )


def _busy(name: str) -> Exception:
    return _refusal(
        503, "busy", f"others keep changing webhook {name}", field="name", remedy="try again"
    )


def _refusal(status: int, kind: str, detail: str, *, field: str | None, remedy: str) -> Exception:
    # Imported when it is needed: a node that nobody calls need not know of problems.
    from waystation.gateway.problems import refusal

    return refusal(status, kind, detail, field=field, remedy=remedy)

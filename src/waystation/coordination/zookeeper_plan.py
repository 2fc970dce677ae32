"""A transaction of the port, as one of ZooKeeper's, planned on a copy of the store.

ZooKeeper compares the count of writes to a node, which begins anew when a node is made again;
the port promises that a recreated key is never mistaken for the old one.  So whatever compares a
version also checks that nothing was deleted since the copy was taken (``graves``).  It cannot
check that a node is absent either, but it can make one and delete it at once.

With this a plan that goes through is exactly what the port asked for, even if the copy was old.
One that does not go through has changed nothing: the copy is renewed and the plan made again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from waystation.coordination.store import ABSENT, LeaseId, Versioned
from waystation.coordination.zookeeper_layout import Layout, encode_item, encode_keys

HEAD = -2  # which step of a plan that changes something touches the head

_ANY = -1


class Held(NamedTuple):
    """An item of the copy: ``zxid`` is its version, ``writes`` what ZooKeeper compares."""

    value: bytes
    zxid: int
    writes: int
    lease: LeaseId

    @property
    def versioned(self) -> Versioned:
        """As the port shows it."""
        return Versioned(self.value, self.zxid)


@dataclass(slots=True)
class Copy:
    """The store as it was at one revision.

    ``changes`` are those that led to it and are still listed, each with its zxid or a later one.
    """

    items: dict[str, Held] = field(default_factory=dict)
    revision: int = 0
    graves: int = 0
    changes: dict[str, int] = field(default_factory=dict)

    def holds(self, compares: Mapping[str, int]) -> bool:
        """Whether every key has the version it is compared with."""
        return all(self.version(key) == version for key, version in compares.items())

    def version(self, key: str) -> int:
        """The version of ``key``, or that it is absent."""
        held = self.items.get(key)
        return held.zxid if held else ABSENT


class Check(NamedTuple):
    """The node is there and was written so many times."""

    path: str
    writes: int


class Create(NamedTuple):
    """The node is not there, and is made."""

    path: str
    data: bytes


class SetData(NamedTuple):
    """The node is there, written so many times or any number of times, and is written."""

    path: str
    data: bytes
    writes: int


class Delete(NamedTuple):
    """The node is there, written so many times or any number of times, and is deleted."""

    path: str
    writes: int


Step = Check | Create | SetData | Delete


class Put(NamedTuple):
    """A put and the step that does it."""

    step: int
    value: bytes
    lease: LeaseId


class Plan(NamedTuple):
    """Steps that all happen or none; the first ``leases`` of them check leases."""

    steps: list[Step]
    leases: int
    puts: dict[str, Put]
    gone: list[str]

    @property
    def changes(self) -> bool:
        """Whether anything will be different."""
        return bool(self.puts or self.gone)

    def outcome(self, zxid: int, results: list[Any]) -> dict[str, Held | None]:
        """What became of the items, given ZooKeeper's results of the steps."""
        items: dict[str, Held | None] = dict.fromkeys(self.gone)
        for key, put in self.puts.items():
            made = isinstance(self.steps[put.step], Create)
            writes = 0 if made else results[put.step].version
            items[key] = Held(put.value, zxid, writes, put.lease)
        return items


def plan(
    copy: Copy,
    layout: Layout,
    name: str,
    compares: Mapping[str, int],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    leases: Mapping[str, LeaseId],
) -> Plan:
    """How to do it, given that the compares hold in ``copy``; ``name`` is the change's."""
    steps: list[Step] = [Check(layout.lease(lease), 0) for lease in sorted({*leases.values()})]
    checked = len(steps)
    if any(version != ABSENT for version in compares.values()):
        steps.append(Check(layout.graves, copy.graves))
    for key in compares:
        if key not in puts and key not in deletes:
            steps += _compare(copy, layout.item(key), key)
    put_by = {}
    for key, value in puts.items():
        put_by[key] = Put(len(steps), value, leases.get(key, LeaseId(0)))
        steps.append(_put(copy, layout, key, encode_item(value, leases.get(key)), compares))
    gone = [key for key in deletes if key in copy.items]
    for key in deletes:
        path = layout.item(key)
        steps += [Delete(path, _writes(copy, key, compares))] if key in gone else _absent(path)
    changed = [*puts, *gone]
    if gone:
        steps.append(SetData(layout.graves, b"", _ANY))
    if changed:
        steps.append(SetData(layout.head, b"", _ANY))
        steps.append(Create(layout.change(name), encode_keys(changed)))
    return Plan(steps, checked, put_by, gone)


def _compare(copy: Copy, path: str, key: str) -> list[Step]:
    held = copy.items.get(key)
    return [Check(path, held.writes)] if held else _absent(path)


def _absent(path: str) -> list[Step]:
    return [Create(path, b""), Delete(path, _ANY)]


def _put(copy: Copy, layout: Layout, key: str, data: bytes, compares: Mapping[str, int]) -> Step:
    if key in copy.items:
        return SetData(layout.item(key), data, _writes(copy, key, compares))
    return Create(layout.item(key), data)


def _writes(copy: Copy, key: str, compares: Mapping[str, int]) -> int:
    return copy.items[key].writes if key in compares else _ANY

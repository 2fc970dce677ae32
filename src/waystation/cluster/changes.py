"""A decision, as operations on the coordination store.

1. ``compares``, ``puts`` and ``deletes`` happen in one transaction or not at all.
2. ``before`` is put ahead of them and means nothing until they happen; ``after`` is deleted
   behind them and means nothing any more.  A crash in between leaves litter, never a
   half-made topic.  Small decisions fit into one transaction altogether.
3. No transaction passes what every store takes.

Where ``before`` does not fit, another writer could replace it between two transactions; so
whoever decides about topics is one at a time, and guards its writes with its epoch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

ABSENT = 0
OPERATIONS_MAX = 100
BYTES_MAX = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """One decision; keys in ``leased`` are put under the writer's lease."""

    compares: Mapping[str, int] = field(default_factory=dict)
    puts: Mapping[str, bytes] = field(default_factory=dict)
    deletes: Sequence[str] = ()
    before: Mapping[str, bytes] = field(default_factory=dict)
    after: Sequence[str] = ()
    leased: Sequence[str] = ()

    def guarded(self, compares: Mapping[str, int]) -> "Changes":
        """The same decision, void unless ``compares`` hold too: the decider's own epoch."""
        return replace(self, compares={**self.compares, **compares})


class Transaction(NamedTuple):
    """What goes to the store at once.

    ``completes`` counts the decisions that are done once this and all before it are.
    """

    compares: dict[str, int]
    puts: dict[str, bytes]
    deletes: list[str]
    leased: list[str]
    completes: int


def in_batches(decisions: Iterable[Changes]) -> Iterator[Transaction]:
    """Pack independent decisions into as few transactions as the store's limits allow.

    A decision is split only if it does not fit by itself, and then its middle stays whole.
    """
    open_batch = _Batch()
    completed = 0
    for changes in decisions:
        steps = [changes] if _Batch().fits(changes) else _split(changes)
        for step in steps:
            if not open_batch.fits(step):
                yield open_batch.transaction(completed)
                open_batch = _Batch()
            open_batch.add(step)
        completed += 1
    if not open_batch.empty:
        yield open_batch.transaction(completed)


class _Batch:
    """A transaction being filled."""

    __slots__ = ("compares", "deletes", "leased", "nbytes", "puts")

    def __init__(self) -> None:
        self.compares: dict[str, int] = {}
        self.puts: dict[str, bytes] = {}
        self.deletes: list[str] = []
        self.leased: list[str] = []
        self.nbytes = 0

    @property
    def empty(self) -> bool:
        return not (self.compares or self.puts or self.deletes)

    def fits(self, step: Changes) -> bool:
        operations = len(self.puts) + len(self.deletes) + _operations(step)
        # What many decisions compare, such as their decider's epoch, is compared once.
        compares = len(self.compares) + sum(key not in self.compares for key in step.compares)
        return (
            max(operations, compares) <= OPERATIONS_MAX and self.nbytes + _nbytes(step) <= BYTES_MAX
        )

    def add(self, step: Changes) -> None:
        self.compares.update(step.compares)
        self.puts.update(step.before)
        self.puts.update(step.puts)
        self.deletes += [*step.deletes, *step.after]
        self.leased += step.leased
        self.nbytes += _nbytes(step)

    def transaction(self, completes: int) -> Transaction:
        return Transaction(self.compares, self.puts, self.deletes, self.leased, completes)


def _split(changes: Changes) -> Iterator[Changes]:
    """The parts of a decision too large for one transaction, in the order they must happen.

    Each part is guarded by the compares on keys that the decision does not write.
    """
    written = {*changes.puts, *changes.deletes, *changes.before, *changes.after}
    guards = {key: version for key, version in changes.compares.items() if key not in written}
    preparing = iter(changes.before.items())
    while part := dict(islice(preparing, OPERATIONS_MAX // 2)):
        own = {key: changes.compares[key] for key in part if key in changes.compares}
        yield Changes(compares={**guards, **own}, before=part)
    prepared = changes.before.keys()
    compares = {key: n for key, n in changes.compares.items() if key not in prepared}
    yield replace(changes, compares=compares, before={}, after=())
    cleaning = iter(changes.after)
    while keys := list(islice(cleaning, OPERATIONS_MAX // 2)):
        yield Changes(compares={}, after=keys)


def _operations(step: Changes) -> int:
    return len(step.puts) + len(step.deletes) + len(step.before) + len(step.after)


def _nbytes(step: Changes) -> int:
    puts = sum(len(key) + len(value) for key, value in step.puts.items())
    return puts + sum(len(key) + len(value) for key, value in step.before.items())

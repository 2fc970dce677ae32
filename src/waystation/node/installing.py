"""Puts a whole cluster's metadata into a store that has none.

1. A store with another cluster in it is never touched.
2. No broker finds half a cluster: the key that makes it one, ``cluster``, is written last, in one
   transaction with the removal of ``installing``, which says whose work is in progress.
3. Interrupted at any point, it is simply done again: what is there of the same work is made what
   it should be, also if it was something else then.
4. It is read back and compared before the last step.  From the last step on nothing is changed.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT
from waystation.cluster.values import ClusterValue, decode, encode
from waystation.coordination.store import (
    BYTES_MAX,
    OPERATIONS_MAX,
    CoordinationStore,
    Snapshot,
)
from waystation.model.errors import StoreUnavailableError, WaystationError

INSTALLING = "installing"
_ATTEMPTS = 10
_PAUSE_S = 0.5


class StoreTakenError(WaystationError):
    """The store has something in it that must not be overwritten."""


class _Step(NamedTuple):
    """One transaction."""

    compares: dict[str, int]
    puts: dict[str, bytes]
    deletes: list[str]


async def install(
    store: CoordinationStore,
    wanted: Mapping[str, bytes],
    *,
    before_last: Callable[[], None] = lambda: None,
) -> bool:
    """Let ``wanted`` be all that the store has; false if that was done before.

    ``before_last`` is called when everything is there and checked, and nobody can use it yet.
    """
    cluster_id = decode(ClusterValue, keys.CLUSTER, wanted[keys.CLUSTER]).id
    for attempt in range(_ATTEMPTS):
        try:
            return await _installed(store, wanted, cluster_id, before_last)
        except StoreUnavailableError:
            # What was asked may have happened: look again, and go on from there.
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


async def check(store: CoordinationStore, wanted: Mapping[str, bytes]) -> bool:
    """Refuse what ``install`` would refuse, without changing anything; false if it is done."""
    cluster_id = decode(ClusterValue, keys.CLUSTER, wanted[keys.CLUSTER]).id
    there = await store.get("")
    if _is_done(there, cluster_id):
        return False
    _check_ours(there, encode(ClusterValue(id=cluster_id)))
    return True


async def _installed(
    store: CoordinationStore,
    wanted: Mapping[str, bytes],
    cluster_id: str,
    before_last: Callable[[], None],
) -> bool:
    mark = encode(ClusterValue(id=cluster_id))
    there = await store.get("")
    if _is_done(there, cluster_id):
        before_last()
        return False
    _check_ours(there, mark)
    if INSTALLING not in there.items:
        await _write(store, _Step({INSTALLING: ABSENT}, {INSTALLING: mark}, []))
    body = {key: value for key, value in wanted.items() if key != keys.CLUSTER}
    while steps := list(_steps(there := await store.get(""), body)):
        _check_ours(there, mark)
        for step in steps:
            await _write(store, step)
    _check_ours(there, mark)
    before_last()
    last = _Step(
        {keys.CLUSTER: ABSENT, INSTALLING: there.items[INSTALLING].version},
        {keys.CLUSTER: wanted[keys.CLUSTER]},
        [INSTALLING],
    )
    await _write(store, last)
    return True


def _is_done(there: Snapshot, cluster_id: str) -> bool:
    """Whether the cluster is in the store already; another one must not be touched."""
    found = there.items.get(keys.CLUSTER)
    if found is None:
        return False
    other = decode(ClusterValue, keys.CLUSTER, found.value).id
    if other != cluster_id:
        raise StoreTakenError(
            f"the store holds cluster {other} already, this is {cluster_id}: name another folder "
            "in the service, e.g. etcd://HOST:PORT/another"
        )
    return True


def _check_ours(there: Snapshot, mark: bytes) -> None:
    """Refuse a store that somebody else's things are in."""
    running = [key for key in there.items if key.startswith("brokers/")]
    if running:
        raise StoreTakenError(
            f"{', '.join(running)} are registered in the store: stop every broker that uses it"
        )
    if keys.CLUSTER in there.items:
        raise StoreTakenError("somebody has founded a cluster in the store meanwhile")
    found = there.items.get(INSTALLING)
    if found is not None and found.value != mark:
        other = decode(ClusterValue, INSTALLING, found.value).id
        raise StoreTakenError(f"the metadata of cluster {other} is half way into the store")
    if found is None and there.items:
        raise StoreTakenError(
            f"the store is not empty, it has e.g. {min(there.items)}: name another folder in the "
            "service, e.g. etcd://HOST:PORT/another"
        )


def _steps(there: Snapshot, wanted: Mapping[str, bytes]) -> Iterator[_Step]:
    """What makes the store's items what they should be, in transactions that every store takes."""
    step, nbytes = _Step({}, {}, []), 0
    for key in sorted({*there.items, *wanted} - {INSTALLING}):
        found, value = there.items.get(key), wanted.get(key)
        if found is not None and found.value == value:
            continue
        size = len(key) + len(value or b"")
        if step.compares and (len(step.compares) >= OPERATIONS_MAX or nbytes + size > BYTES_MAX):
            yield step
            step, nbytes = _Step({}, {}, []), 0
        step.compares[key] = ABSENT if found is None else found.version
        nbytes += size
        if value is None:
            step.deletes.append(key)
        else:
            step.puts[key] = value
    if step.compares:
        yield step


async def _write(store: CoordinationStore, step: _Step) -> None:
    outcome = await store.txn(step.compares, step.puts, step.deletes)
    if not outcome.succeeded:
        raise StoreUnavailableError("somebody else writes into the store at the same time")

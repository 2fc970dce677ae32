"""In-process watches: order, coalescing, and telling a watcher that it missed something."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.coordination import watches
from waystation.coordination.store import Change, Versioned, under
from waystation.coordination.watches import LocalWatch, Watches
from waystation.model.errors import CompactedError

KEYS = ("a", "b", "t/a", "t/b")


def put(revision: int, key: str) -> Change:
    return Change(revision, {key: Versioned(b"%d" % revision, revision)}, ())


async def test_what_waits_for_a_slow_watcher_is_one_state_per_key() -> None:
    registry = Watches(0)
    watch = registry.watch("", 0)
    for revision in range(1, 100):
        registry.publish(put(revision, KEYS[revision % 2]))
    registry.publish(Change(100, {}, ("a",)))

    change = await anext(watch)

    assert change.revision == 100
    assert change.puts == {"b": Versioned(b"99", 99)}
    assert change.deletes == ("a",)


async def test_a_watcher_hopelessly_behind_is_told_to_list_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "PENDING_KEYS_MAX", 3)
    registry = Watches(0)
    watch = registry.watch("", 0)
    for revision, key in enumerate(KEYS, 1):
        registry.publish(put(revision, key))

    with pytest.raises(CompactedError):
        await anext(watch)
    assert await anext(watch, None) is None


async def test_a_change_nobody_could_be_told_of_makes_everyone_list_again() -> None:
    registry = Watches(0)
    watch = registry.watch("", 0)
    registry.publish(put(1, "a"))
    registry.lose()

    with pytest.raises(CompactedError):
        await anext(watch)


def told(watch: LocalWatch) -> bool:
    """Whether the next change would come without waiting."""
    return watch._ready.is_set()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS)),
        st.tuples(st.just("delete"), st.sampled_from(KEYS)),
        st.tuples(st.just("read"), st.just("")),
        st.tuples(st.just("reopen"), st.just("")),
    ),
    max_size=40,
)


@given(steps, st.sampled_from(["", "t/", "a"]), st.integers(1, 8))
async def test_a_watcher_ends_with_the_last_state_of_its_prefix_or_is_told(
    steps: list[tuple[str, str]], prefix: str, history_max: int
) -> None:
    """Writes, slow reads and reopening from the last revision seen, in any order."""
    registry = Watches(0, history_max)
    watch = registry.watch(prefix, 0)
    real: dict[str, Versioned] = {}
    copy: dict[str, Versioned] = {}
    revision = seen = 0

    async def read() -> None:
        nonlocal watch, seen
        try:
            change = await anext(watch)
        except CompactedError:
            seen, watch = revision, registry.watch(prefix, revision)
            copy.clear()
            copy.update({key: item for key, item in real.items() if under(prefix, key)})
            return
        assert change.revision > seen
        seen = change.revision
        copy.update(change.puts)
        for key in change.deletes:
            copy.pop(key, None)

    for step, key in [*steps, ("read", "")]:
        match step:
            case "put":
                revision += 1
                real[key] = Versioned(b"%d" % revision, revision)
                registry.publish(Change(revision, {key: real[key]}, ()))
            case "delete":
                revision += 1
                real.pop(key, None)
                registry.publish(Change(revision, {}, (key,)))
            case "reopen":
                watch.close()
                watch = registry.watch(prefix, seen)
            case "read" if told(watch):
                await read()

    assert copy == {key: item for key, item in real.items() if under(prefix, key)}

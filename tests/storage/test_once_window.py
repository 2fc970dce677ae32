"""What is remembered of idempotency keys, and what it takes."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.building import (
    NOW,
    SMALL,
    checkpoint,
    flush,
    names_in,
    new_log,
    open_log,
    read_all,
)
from tests.storage.compacting import compact, new_compacted, rows_in, settled
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.header import batches, mark_once
from waystation.records.once import HEADER_NAME, OnceEntry, entries_of, hash_of, once_batch
from waystation.storage import once_files
from waystation.storage.log import Log
from waystation.storage.once_window import ENTRY_BYTES, OnceWindow
from waystation.testing.disk import SimulatedDisk

KEYS = [hash_of(b"%d" % number) for number in range(12)]
WINDOW_MS = 100

steps = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.sampled_from(KEYS), st.integers(0, 60)),
        st.tuples(st.just("cut"), st.integers(0, 40)),
        st.tuples(st.just("expire")),
        st.tuples(st.just("write")),
        st.tuples(st.just("fail")),
    ),
    max_size=60,
)


def entry(hashed: bytes, offset: int, at: int = NOW) -> OnceEntry:
    return OnceEntry(hashed, Offset(offset), b"f" * 8, Millis(at), Millis(at - 5))


@settings(deadline=None)
@given(steps)
def test_the_newest_of_each_key_is_found_and_written_whatever_happens(
    steps: list[tuple[object, ...]],
) -> None:
    """Against a plain list; what was written, read back, is what is remembered."""
    window, log, now = OnceWindow(), list[OnceEntry](), NOW
    written, written_to = b"", Offset(0)
    for kind, *more in steps:
        match kind, more:
            case "note", [bytes(hashed), int(later)]:
                now = Millis(now + later)
                log.append(entry(hashed, len(log), now))
                window.note(log[-1:])
            case "cut", [int(offset)]:
                del log[offset:]
                window.cut(Offset(offset))
                kept = [one for one in _entries(written) if one.offset < offset]
                written = b"".join(_packed(one) for one in kept)
                written_to = min(written_to, Offset(offset))
            case "expire", _:
                for _ in range(64):
                    window.expire(Millis(now - WINDOW_MS))
            case "write", _:
                written += window.take_fresh(written_to, Offset(len(log)))
                written_to = Offset(len(log))
            case "fail", _:
                window.take_fresh(written_to, Offset(len(log)))
        again = OnceWindow()
        again.load(written)
        again.note(one for one in log if one.offset >= written_to)
        for hashed in KEYS:
            newest = next((one for one in reversed(log) if one.hashed == hashed), None)
            if newest is not None and newest.at >= now - WINDOW_MS:
                assert window.find(hashed) == newest
                assert again.find(hashed) == newest
            for known in (window.find(hashed), again.find(hashed)):
                assert known is None or known in log


def _entries(packed: bytes) -> Iterator[OnceEntry]:
    window = OnceWindow()
    window.load(packed)
    return iter(sorted(window, key=lambda one: one.offset))


def _packed(one: OnceEntry) -> bytes:
    window = OnceWindow()
    window.note([one])
    return window.take_fresh(Offset(0), Offset(one.offset + 1))


def test_a_hash_that_lies_across_entries_is_not_taken_for_a_key() -> None:
    """Sixteen bytes from the middle of two entries, in the bucket that they would be in."""
    window = OnceWindow()
    first, second = entry(bytes(16), 0), entry(bytes(16), 1)
    window.note([first, second])
    raw = _packed(first) + _packed(second)
    for at in range(1, len(raw) - 16):
        found = window.find(raw[at : at + 16])
        assert found in (None, second), f"{at}: {found}"


def test_a_key_takes_little_more_than_its_entry() -> None:
    """Beside the entry only what buckets have to spare; the buckets themselves are 4,096."""
    count = 100_000
    window = OnceWindow()
    window.note(entry(hash_of(b"%d" % number), number) for number in range(count))
    window.take_fresh(Offset(0), Offset(count))

    held = sum(map(sys.getsizeof, window._buckets.values()))
    assert len(window) == count
    assert held / count < ENTRY_BYTES * 1.3


def test_what_was_not_written_or_is_cut_is_not_looked_for_among_all_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(OnceWindow, "_since")
    window = OnceWindow()
    window.note(entry(KEYS[number], number) for number in range(4))
    written = window.take_fresh(Offset(0), Offset(4))
    window.note([entry(KEYS[4], 4)])
    assert window.take_fresh(Offset(0), Offset(5)).startswith(written)  # the disk was full
    window.cut(Offset(3))
    window.note([entry(KEYS[5], 3)])

    taken = window.take_fresh(Offset(0), Offset(4))
    assert [one.offset for one in _entries(taken)] == [0, 1, 2, 3]
    assert _entries_at(taken, 3) == [KEYS[5]]
    window.let_go(Offset(4))
    window.note([entry(KEYS[6], 4)])
    assert [one.offset for one in _entries(window.take_fresh(Offset(4), Offset(5)))] == [4]


def test_a_clock_that_went_back_keeps_no_other_keys_for_long() -> None:
    """A key that was stored by a clock a year ahead is remembered; those after it go in time."""
    year_ms = 365 * 86_400_000
    window = OnceWindow()
    hashed = [bytes([0, 0, number]) + bytes(13) for number in range(5)]  # all in one bucket
    window.note([entry(hashed[0], 0, NOW), entry(hashed[1], 1, NOW + year_ms)])
    window.note(entry(one, 2 + number, NOW + 10) for number, one in enumerate(hashed[2:]))

    for _ in range(64):
        window.expire(Millis(NOW + 11))

    assert len(window) == 1
    assert [window.find(one) is not None for one in hashed] == [False, True, False, False, False]


def _entries_at(packed: bytes, offset: int) -> list[bytes]:
    return [one.hashed for one in _entries(packed) if one.offset == offset]


# --- beside a log -------------------------------------------------------------------------------


def append(log: Log, *keys: str, now: int = NOW, key: bytes | None = None) -> None:
    rows = [(0, now, key, b"v" * 50, ((HEADER_NAME, one.encode()),)) for one in keys]
    content = once_batch(rows, Millis(now))
    header = mark_once(content)
    log.append_once(memoryview(content), header, LeaderEpoch(0), Millis(now))


def known(log: Log, *keys: str) -> list[int | None]:
    found = [log.once.find(hash_of(key.encode())) for key in keys]
    return [None if one is None else one.offset for one in found]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_a_key_outlives_its_message(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append(log, "a")
    log.roll()
    append(log, "b")
    flush(log)
    checkpoint(directory)
    log.advance_log_start(Offset(1))
    directory.plan_log_starts()()
    directory.drop_retired(log, NOW)
    directory.purge(NOW)
    assert sum(name.endswith(".log") for name in names_in(disk)) == 1
    directory.close({})
    directory.unlock()

    assert known(open_log(disk)[1], "a", "b", "c") == [0, 1, None]


def test_compaction_takes_messages_and_no_keys(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    for number in range(6):
        append(log, f"{number}", key=b"k%d" % (number % 2))
    settled(directory, log)
    compact(log)
    assert [offset for offset, _, _ in rows_in(log)] == [4, 5]
    copy, raw = OnceWindow(), read_all(log)
    for at, _ in batches(raw):
        copy.note(entries_of(raw, at))
    directory.close({})
    directory.unlock()

    log = open_log(disk)[1]

    assert known(log, *"012345") == [0, 1, 2, 3, 4, 5]
    assert sorted(one.offset for one in copy) == [4, 5]


def test_files_go_when_nothing_in_them_is_remembered(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once_files, "_FILE_BYTES", 1)
    directory, log = new_log(disk, TopicSettings(idempotency_window_ms=1_000))
    for number in range(4):
        append(log, f"{number}", now=NOW + number * 400)
        flush(log)
        checkpoint(directory)
    assert sum(name.endswith(".once") for name in names_in(disk)) == 4
    for _ in range(64):
        log.forget_keys(Millis(NOW + 1_700))
    append(log, "new", now=NOW + 1_700)
    flush(log)
    checkpoint(directory)

    assert sum(name.endswith(".once") for name in names_in(disk)) == 3
    assert known(log, "0", "1", "2", "3", "new") == [None, None, 2, 3, 4]


@pytest.mark.parametrize("position", [0, 3, 8, 20, 30, 100])
def test_a_damaged_file_is_made_anew_from_the_log(disk: SimulatedDisk, position: int) -> None:
    directory, log = new_log(disk, SMALL)
    for keys in (["a", "b"], ["c"], ["d"]):
        append(log, *keys)
        flush(log)
        checkpoint(directory)
    directory.close({})
    directory.unlock()
    (name,) = (one for one in names_in(disk) if one.endswith(".once"))
    file = disk.open(log.path / name)
    file.pwrite(b"\xff\xfe\xfd", position)
    file.datasync()

    directory, log = open_log(disk)

    assert known(log, "a", "b", "c", "d") == [0, 1, 2, 3]
    checkpoint(directory)
    directory.close({})
    directory.unlock()
    assert known(open_log(disk)[1], "a", "b", "c", "d") == [0, 1, 2, 3]

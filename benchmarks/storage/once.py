"""What idempotency keys cost, and that messages without one pay nothing for them.

Run: python -m benchmarks.storage.once [keys]     (1,000,000)

The keys: memory, time to store and to look up, what a checkpoint writes, what a start reads.  And
ordinary batches, checked and appended as Produce does: in turns to a log that has no keys and to
one that remembers all of them, whose ratio should be 1; and as a follower appends them.  Times
are those of the processor, for the machine may be busy.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID

from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.partition.intake import Intake
from waystation.partition.once import Asked, decide
from waystation.records.batch import BatchBuilder
from waystation.records.header import mark_once, stamp
from waystation.records.once import HEADER_NAME, OnceEntry, fingerprint_of, hash_of, once_batch
from waystation.records.record import Row
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.log import Log
from waystation.storage.once_window import OnceWindow
from waystation.storage.settings import StorageSettings

NOW = Millis(1_700_000_000_000)
EPOCH = LeaderEpoch(0)
SETTINGS = TopicSettings(segment_bytes=256 << 20)
ROUNDS, BATCHES = 15, 2_000
LOOK_UPS = 20_000
PER_CHECKPOINT = 10_000
PER_REQUEST = 100


def entry(number: int) -> OnceEntry:
    return OnceEntry(hash_of(b"key-%d" % number), Offset(number), bytes(8), NOW, NOW)


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def new_log(folder: Path, number: int) -> Log:
    directory = DataDirectory(folder / f"{number}", RealDisk(), StorageSettings(), NodeId(1))
    return directory.create_log(TopicPartition("t", number), TopicId(UUID(int=1)), SETTINGS)


def plain_batch() -> bytearray:
    builder = BatchBuilder()
    for _ in range(10):
        builder.append(None, os.urandom(100), timestamp=NOW)
    return bytearray(builder.build())


def produced(log: Log, intake: Intake, batch: bytearray) -> float:
    """Seconds per batch, as a leader appends it."""
    began = time.process_time()
    for _ in range(BATCHES):
        stamp(batch, 0, Offset(0), EPOCH)
        view, header = intake.admit(memoryview(batch), NOW)
        log.append(view, header, EPOCH, NOW)
    return (time.process_time() - began) / BATCHES


def copied(log: Log, batch: bytearray) -> float:
    """Seconds per batch, as a follower appends it."""
    began = time.process_time()
    for _ in range(BATCHES):
        stamp(batch, 0, log.log_end, EPOCH)
        log.append_replicated(memoryview(batch), NOW)
    return (time.process_time() - began) / BATCHES


def ordinary(folder: Path, window: OnceWindow) -> None:
    plain, keyed, intake, batch = new_log(folder, 0), new_log(folder, 1), Intake(SETTINGS), b""
    keyed.once = window
    best = dict.fromkeys(("plain", "keyed", "plain copied", "keyed copied"), 1e9)
    for _ in range(ROUNDS):
        batch = plain_batch()
        best["plain"] = min(best["plain"], produced(plain, intake, batch))
        best["keyed"] = min(best["keyed"], produced(keyed, intake, batch))
        best["plain copied"] = min(best["plain copied"], copied(plain, batch))
        best["keyed copied"] = min(best["keyed copied"], copied(keyed, batch))
    for kind, what in (("", "produced"), (" copied", "copied")):
        without, beside = best[f"plain{kind}"], best[f"keyed{kind}"]
        print(
            f"ordinary batch of 10 x 100 bytes, {what}: {without * 1e6:.2f} µs without keys, "
            f"{beside * 1e6:.2f} µs beside {len(window):,} keys: {beside / without:.3f}x"
        )


def memory(keys: int) -> OnceWindow:
    before, window = rss_bytes(), OnceWindow()
    began = time.process_time()
    for start in range(0, keys, PER_REQUEST):
        window.note([entry(number) for number in range(start, min(start + PER_REQUEST, keys))])
    took_s = time.process_time() - began
    gathered = rss_bytes() - before
    content = window.take_fresh(Offset(0), Offset(keys))
    size_bytes = len(content)
    del content
    window.let_go(Offset(keys))
    print(
        f"{keys:,} keys: {(rss_bytes() - before) / keys:.1f} bytes each in memory, "
        f"{gathered / keys:.1f} before a checkpoint, {size_bytes / keys:.1f} on disk; "
        f"{took_s / keys * 1e6:.2f} µs to remember one"
    )
    return window


def look_ups(window: OnceWindow, keys: int) -> None:
    times = {"known": list[float](), "new": list[float]()}
    for number in range(LOOK_UPS):
        for kind, key in (("known", number * (keys // LOOK_UPS or 1)), ("new", keys + number)):
            hashed = hash_of(b"key-%d" % key)
            began = time.perf_counter()
            found = window.find(hashed)
            times[kind].append(time.perf_counter() - began)
            assert (found is not None) == (kind == "known" and key < keys)
    for kind, taken in times.items():
        taken.sort()
        print(
            f"look-up of a {kind} key: {taken[len(taken) // 2] * 1e6:.2f} µs median, "
            f"{taken[len(taken) * 99 // 100] * 1e6:.2f} µs p99"
        )


def requests(folder: Path, window: OnceWindow) -> None:
    """What a message with a key costs its leader beyond the request itself."""
    log, intake = new_log(folder, 2), Intake(SETTINGS)
    log.once = window
    for count in (1, PER_REQUEST):
        best = 1e9
        for turn in range(200 // count + 20):
            rows: list[Row] = [
                (0, NOW, b"ann", b"x" * 100, ((HEADER_NAME, b"%d-%d-%d" % (count, turn, one)),))
                for one in range(count)
            ]
            began = time.process_time()
            asked = [
                Asked(row, hash_of(row[4][0][1] or b""), fingerprint_of(*row[2:])) for row in rows
            ]
            decide(window, asked, Millis(0))
            batch, _ = intake.admit(memoryview(once_batch(rows, NOW)), NOW)
            log.append_once(batch, mark_once(batch), EPOCH, NOW)
            best = min(best, time.process_time() - began)
        print(f"{count} messages with keys in a request: {best / count * 1e6:.1f} µs each")


def upkeep(window: OnceWindow, keys: int) -> None:
    began = time.process_time()
    packed = window.copied().take_fresh(Offset(0), Offset(keys))
    moved_s = time.process_time() - began
    fresh, end = PER_CHECKPOINT, Offset(keys + PER_CHECKPOINT)
    window.note(entry(number) for number in range(keys, keys + fresh))
    window.take_fresh(Offset(keys), end)
    began = time.process_time()
    window.take_fresh(Offset(keys), end)
    again_s = time.process_time() - began
    began = time.process_time()
    OnceWindow().load(packed)
    loaded_s = time.process_time() - began
    began = time.process_time()
    window.expire(Millis(NOW - 1))
    looked_s = time.process_time() - began
    began = time.process_time()
    window.expire(Millis(NOW + 1))
    expired_s = time.process_time() - began
    print(
        f"read at a start: {loaded_s:.2f} s; {fresh:,} taken again after a failed checkpoint: "
        f"{again_s * 1e3:.2f} ms; all taken where a log moves to another disk: "
        f"{moved_s * 1e3:.0f} ms; a look for old ones: {looked_s * 1e3:.2f} ms, "
        f"{expired_s * 1e3:.2f} ms if all are"
    )


def main() -> None:
    keys = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else 1_000_000
    window = memory(keys)
    look_ups(window, keys)
    with tempfile.TemporaryDirectory() as folder:
        ordinary(Path(folder), window)
        requests(Path(folder), window)
    upkeep(window, keys)


if __name__ == "__main__":
    main()

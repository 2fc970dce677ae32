"""What waiting messages cost: memory, building the index, taking it over, delivering.

A companion's log of as many messages as asked for, due at random over a year, is applied as a
replica does when it has no index; then the schedule is opened from its checkpoint as a new
leader does; then a stretch of messages that fall due together is decided upon, batch by batch,
with records of 100 bytes.  All figures are CPU time, but what lies on disk is as it is.

Run: python -m benchmarks.scheduling.index [--pending 1000000]
"""

import argparse
import gc
import random
import resource
import tempfile
import time
from pathlib import Path

from waystation.model.ids import LeaderEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder
from waystation.records.header import peek, stamp
from waystation.scheduling.mover import Outcome, Send
from waystation.scheduling.records import decision_batch
from waystation.scheduling.schedule import Schedule
from waystation.scheduling.settings import ScheduleSettings
from waystation.storage.disk import RealDisk
from waystation.storage.schedule_files import ScheduleFiles

TARGET = TopicPartition("orders", 0)
EPOCH = LeaderEpoch(1)
NOW = Millis(1_800_000_000_000)
YEAR_MS = 365 * 86_400_000
BATCH_RECORDS = 100
SETTINGS = ScheduleSettings()


def batch_at(offset: int, chance: random.Random, horizon_ms: int) -> bytes:
    """Messages as a producer sends them."""
    builder = BatchBuilder()
    for _ in range(BATCH_RECORDS):
        due = b"%d" % (NOW + chance.randrange(horizon_ms))
        assert builder.append(b"key", bytes(100), (("deliver-at", due),), timestamp=NOW)
    return stamped(builder.build(), offset)


def stamped(batch: bytes, offset: int) -> bytes:
    placed = bytearray(batch)
    stamp(placed, 0, Offset(offset), EPOCH)
    return bytes(placed)


def keep_up(schedule: Schedule) -> None:
    for step in schedule.upkeep():
        step()


def memory_mb() -> float:
    """What the process has now, not what it once had."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def opened(path: Path) -> Schedule:
    files = ScheduleFiles(RealDisk(), path / "schedule")
    return Schedule.opened(TARGET, files, SETTINGS, lambda offset, epoch: epoch == EPOCH)


def build(path: Path, pending: int) -> int:
    """Apply a whole log; where it ends."""
    chance, schedule = random.Random(1), opened(path)
    made_s = applied_s = kept_s = longest_s = 0.0
    for offset in range(0, pending, BATCH_RECORDS):
        began = time.process_time()
        batch = batch_at(offset, chance, YEAR_MS)
        made_s += time.process_time() - began
        began = time.process_time()
        schedule.apply(batch)
        applied_s += time.process_time() - began
        if schedule.wants_upkeep():
            for step in schedule.upkeep():
                began = time.process_time()
                step()
                step_s = time.process_time() - began
                kept_s, longest_s = kept_s + step_s, max(longest_s, step_s)
    keep_up(schedule)
    total_s, runs = applied_s + kept_s, len(schedule.index.runs)
    size_mb = sum(file.stat().st_size for file in (path / "schedule").iterdir()) / (1 << 20)
    print(
        f"built    {pending:,} entries at {pending / total_s:,.0f} per CPU second: applying "
        f"{applied_s / pending * 1e6:.2f} µs, files {kept_s / pending * 1e6:.2f} µs each, "
        f"longest step {longest_s * 1e3:.0f} ms; {size_mb:.0f} MB in {runs} runs"
    )
    return schedule.applied


def take_over(path: Path, log_end: int) -> Schedule:
    began, wall = time.process_time(), time.perf_counter()
    schedule = opened(path)
    schedule.lead(EPOCH, Offset(log_end))
    schedule.mover.enrol(ProducerId(7))
    first = schedule.next_due()
    assert first is not None
    print(
        f"took over {schedule.index.pending:,} pending: {time.process_time() - began:.3f} s CPU, "
        f"{time.perf_counter() - wall:.3f} s by the clock"
    )
    return schedule


def deliver(schedule: Schedule, count: int, per_batch: int) -> None:
    """Everything but the reading of bodies and the network."""
    offset, delivered, longest_s = int(schedule.applied), 0, 0.0
    now = Millis(NOW + YEAR_MS)
    began = time.process_time()
    while delivered < count:
        turn = time.process_time()
        items = schedule.due(now, per_batch)
        decision = stamped(decision_batch(schedule.decide(items, now), now), offset)
        schedule.apply(decision)
        offset = peek(decision).next_offset
        (ask,) = schedule.mover.work(now)
        assert isinstance(ask, Send)
        schedule.mover.answered(ask.token, Outcome.DONE, now)
        delivered += len(items)
        if schedule.wants_upkeep():
            keep_up(schedule)
        longest_s = max(longest_s, time.process_time() - turn)
    spent_s = time.process_time() - began
    print(
        f"delivered {delivered:,} in batches of {per_batch}: {delivered / spent_s:,.0f} per CPU "
        f"second, longest turn {longest_s * 1e3:.0f} ms (with files)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pending", type=int, default=1_000_000)
    pending = parser.parse_args().pending
    with tempfile.TemporaryDirectory() as folder:
        before_mb = memory_mb()
        log_end = build(Path(folder), pending)
        gc.collect()
        held_mb = memory_mb() - before_mb
        print(f"memory   {held_mb:.1f} MB more: {held_mb * (1 << 20) / pending:.1f} B per entry")
        schedule = take_over(Path(folder), log_end)
        print(f"memory   {memory_mb() - before_mb:.1f} MB more with the wheel filled")
        for per_batch in (50, 1_000):
            deliver(schedule, min(pending // 4, 100_000), per_batch)
        print(f"memory   {memory_mb() - before_mb:.1f} MB more after that")


if __name__ == "__main__":
    main()

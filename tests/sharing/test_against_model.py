"""A queue of ranges does what a queue with a row per message would do, step by step, by seed."""

from random import Random
from typing import Any

import pytest

from tests.sharing.queues import LOCK_MS, queue
from tests.support.soak import count
from waystation.model.errors import InvalidRecordStateError
from waystation.model.offsets import Millis, Offset
from waystation.sharing.states import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    WAITING,
    Acknowledgement,
)

MEMBERS = ("a", "b", "c")
LIMIT, PAUSE_MS, LOCKS = 3, 700, 25
SETTLED = (ACKNOWLEDGED, ARCHIVED)


class Row:
    """One message."""

    def __init__(self) -> None:
        self.state, self.deliveries, self.holder, self.until = AVAILABLE, 0, "", 0


class Model:
    """The plainest queue there is."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.end = self.gone = 0

    def tick(self, now: int) -> None:
        for row in self.rows.values():
            if row.state == ACQUIRED and row.until <= now:
                self.fail(row, now)
        for row in self.rows.values():
            if row.state == WAITING and row.until <= now:
                row.state = AVAILABLE

    def fail(self, row: Row, now: int) -> None:
        if row.deliveries >= LIMIT:
            row.state = ARCHIVED
        else:
            row.state, row.until = WAITING, now + PAUSE_MS * 2 ** (row.deliveries - 1)

    def acquire(self, now: int, member: str, limit: int, first: int, end: int) -> list[int]:
        out = sum(row.state == ACQUIRED for row in self.rows.values())
        limit = min(limit, LOCKS - out)
        chosen = [
            offset
            for offset, row in sorted(self.rows.items())
            if row.state == AVAILABLE and first <= offset < end
        ][: max(limit, 0)]
        while len(chosen) < limit and first <= self.end < end:
            self.rows[self.end] = Row()
            chosen.append(self.end)
            self.end += 1
        for offset in chosen:
            row = self.rows[offset]
            row.state, row.holder, row.until = ACQUIRED, member, now + LOCK_MS
            row.deliveries += 1
        return chosen

    def acknowledge(self, now: int, member: str, said: list[tuple[int, int, int]]) -> bool:
        meant = [
            (offset, kind)
            for first, end, kind, _ in said
            for offset in range(max(first, self.gone), end)
        ]
        held = [self.rows.get(offset) for offset, _ in meant]
        if any(row is None or row.state != ACQUIRED or row.holder != member for row in held):
            return False
        for offset, kind in meant:
            row = self.rows[offset]
            match kind:
                case 1:
                    row.state = ACKNOWLEDGED
                case 2:
                    self.fail(row, now)
                case 4:
                    row.until = now + LOCK_MS
                case _:
                    row.state = ARCHIVED
        return True

    def leave(self, now: int, member: str) -> None:
        for row in self.rows.values():
            if row.state == ACQUIRED and row.holder == member:
                self.fail(row, now)

    def retain(self, start: int) -> None:
        self.gone = max(self.gone, start)
        self.end = max(self.end, start)
        self.rows = {offset: row for offset, row in self.rows.items() if offset >= start}

    @property
    def start(self) -> int:
        unsettled = [offset for offset, row in self.rows.items() if row.state not in SETTLED]
        return min(unsettled, default=self.end)

    def counts(self) -> tuple[int, ...]:
        start = self.start
        states = [row.state for offset, row in self.rows.items() if offset >= start]
        settled = sum(state in SETTLED for state in states)
        kinds = (AVAILABLE, WAITING, ACQUIRED)
        return (start, self.end, *(states.count(kind) for kind in kinds), 0, settled)


@pytest.mark.parametrize("seed", range(count(25, 2_000)))
def test_ranges_do_what_rows_would(seed: int) -> None:
    random, model, now = Random(seed), Model(), 0
    ranges: Any = queue(
        locks=LOCKS, max_deliveries=LIMIT, retry_backoff_ms=PAUSE_MS, retry_backoff_factor=2.0
    )
    for _ in range(150):
        now += random.choice((0, 0, 1, 500, 5_000, LOCK_MS))
        ranges.tick(Millis(now))
        model.tick(now)
        member = random.choice(MEMBERS)
        match random.randrange(8):
            case 0 | 1 | 2:
                first = ranges.next_offset(Millis(now))
                if first is not None:
                    asked = random.randrange(1, 12), first, Offset(first + random.randrange(1, 30))
                    got = ranges.acquire(Millis(now), member, *asked)
                    expected = model.acquire(now, member, *asked)
                    assert [o for one in got for o in range(one.first, one.end)] == expected
            case 3 | 4 | 5 | 6:
                said = speech(random, ranges.held_by(member), model.start)
                try:
                    ranges.acknowledge(Millis(now), member, said)
                    followed = True
                except InvalidRecordStateError:
                    followed = False
                assert followed == model.acknowledge(now, member, [tuple(one) for one in said])
            case _ if random.random() < 0.5:
                ranges.leave(Millis(now), member)
                model.leave(now, member)
            case _:
                start = model.start + random.choice((0, 1, 3))
                ranges.log_begins_at(Offset(start))
                model.retain(start)

        assert tuple(ranges.counts()) == model.counts()
        held = {
            (offset, one.deliveries)
            for one in ranges.held_by(member)
            for offset in range(one.first, one.end)
        }
        assert held == {
            (offset, row.deliveries)
            for offset, row in model.rows.items()
            if row.state == ACQUIRED and row.holder == member
        }


def speech(random: Random, held: list[Any], start: int) -> list[Acknowledgement]:
    """Something to say of what is held, now and then of what is not."""
    said = []
    for first, end, _ in sorted(held):
        at = first
        while at < end:
            until = min(at + random.randrange(1, 6), end)
            kind = random.choice((ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW, GAP))
            if random.random() < 0.8:
                said.append(Acknowledgement(Offset(at), Offset(until), kind))
            at = until
    if random.random() < 0.1 and not said:
        said.append(Acknowledgement(Offset(start), Offset(start + 3), ACCEPT))
    return said

"""What a committed log means, worked out the slow and plain way, and what must follow from it."""

from collections import Counter

from tests.scheduling.target import Target
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import rows_of
from waystation.records.control import read_marker
from waystation.records.header import peek
from waystation.scheduling.cron import Cron
from waystation.scheduling.errors import InvalidScheduleError
from waystation.scheduling.headers import timing_of
from waystation.scheduling.records import Cancelled, Decided, Retimed, Withdrawn, read_decision
from waystation.scheduling.schedule import Schedule
from waystation.scheduling.wheel import Due


class BrokenPromiseError(Exception):
    """Lost, twice, early, cancelled yet delivered, or out of order."""


class Witness:
    """Follows the committed log; knows neither index nor wheel nor mover."""

    def __init__(self) -> None:
        self.pending: dict[int, int] = {}
        self.values: dict[int, bytes] = {}
        self.crons: dict[int, Cron] = {}
        self.cancelled: dict[int, int] = {}
        """How often each was decided upon before it was cancelled."""
        self.decided: Counter[int] = Counter()
        self._open: dict[int, list[tuple[int, int, Cron | None]]] = {}
        self._last: Decided | None = None

    def follow(self, batches: list[bytes]) -> None:
        for batch in batches:
            header = peek(batch)
            if not header.is_control:
                self._messages(batch)
                continue
            marker, decision = read_marker(batch), read_decision(batch)
            if marker is not None:
                found = self._open.pop(marker.producer_id, [])
                if marker.committed:
                    self._admit(found)
            match decision:
                case Decided():
                    self._move(decision)
                case Withdrawn():
                    self._withdraw()
                case Cancelled(_, offset):
                    del self.pending[offset]
                    self.crons.pop(offset, None)
                    self.cancelled[offset] = self.decided[offset]
                case Retimed(_, offset, to):
                    self.pending[offset] = to

    def _messages(self, batch: bytes) -> None:
        found: list[tuple[int, int, Cron | None]] = []
        for offset, timestamp, _, value, headers in rows_of(batch):
            self.values[offset] = value or b""
            try:
                due, cron = timing_of(headers, Millis(timestamp))
            except InvalidScheduleError:
                continue
            found.append((offset, due, cron))
        header = peek(batch)
        if header.is_transactional:
            self._open.setdefault(header.producer_id, []).extend(found)
        else:
            self._admit(found)

    def _admit(self, found: list[tuple[int, int, Cron | None]]) -> None:
        for offset, due, cron in found:
            self.pending[offset] = due
            if cron is not None:
                self.crons[offset] = cron

    def _move(self, decided: Decided) -> None:
        self._last = decided
        for due, offset in decided.items:
            if self.pending.get(offset) != due:
                raise BrokenPromiseError(f"{offset} is moved at {due} and is not pending then")
            if due > decided.at:
                raise BrokenPromiseError(f"{offset} is moved at {decided.at} and due at {due}")
            self.decided[offset] += 1
            del self.pending[offset]
            if offset in self.crons:
                following = self.crons[offset].next_after(Millis(max(due, decided.at)))
                assert following is not None
                self.pending[offset] = following

    def _withdraw(self) -> None:
        assert self._last is not None, "something was withdrawn and nothing was under way"
        for due, offset in self._last.items:
            self.decided[offset] -= 1
            self.pending[offset] = due

    # --- promises -----------------------------------------------------------------------

    def check_decision(self, items: list[Due], now: Millis, schedule: Schedule) -> None:
        """The leader is about to move these: nothing early, and in order.

        What it was told of may be less than what is committed, and what somebody is about to
        cancel is not to be moved, so others may be due before; none of these may be misplaced.
        """
        if any(due > now for due, _ in items):
            raise BrokenPromiseError(f"{items} go at {now}, before their time")
        if items != sorted(items):
            raise BrokenPromiseError(f"{items} are not in the order of their times")
        if schedule.applied < max(self.values, default=-1):
            return
        ahead = [
            (due, offset)
            for offset, due in self.pending.items()
            if (due, offset) < items[-1] and (due, offset) not in items
        ]
        if any(offset not in schedule._spoken for _, offset in ahead):
            raise BrokenPromiseError(f"{ahead} are due before {items[-1]} and wait")

    def check_target(self, target: Target) -> None:
        """Nothing is there more often than it was decided upon."""
        delivered = Counter(target.values)
        for offset, times in self.cancelled.items():
            if delivered[self.values[offset]] > times:
                raise BrokenPromiseError(f"{offset} was cancelled and delivered")
        offsets = {value: offset for offset, value in self.values.items()}
        for value, times in delivered.items():
            if value not in offsets:
                raise BrokenPromiseError(f"{value!r} was delivered and is not committed")
            if times > self.decided[offsets[value]]:
                raise BrokenPromiseError(f"{offsets[value]} was delivered too often: {times}")

    def check_all_came(self, now: Millis) -> None:
        """After enough quiet time nothing is due, and everything decided upon is there."""
        late = [offset for offset, due in self.pending.items() if due < now - 20_000]
        if late:
            raise BrokenPromiseError(f"{late} were due long ago and did not come")

    def check_delivered(self, target: Target) -> None:
        """Everything that was decided upon is there."""
        delivered = Counter(target.values)
        for offset, times in self.decided.items():
            if delivered[self.values[offset]] != times:
                raise BrokenPromiseError(
                    f"{offset} came {delivered[self.values[offset]]} times instead of {times}"
                )

    def check_pending(self, schedule: Schedule) -> None:
        """What a replica believes to be pending is what is."""
        found, position = [], None
        while True:
            some, position = schedule.pending(position, 50)
            found += some
            if position is None:
                break
        believed = {one.offset: one.due for one in found}
        if believed != {Offset(offset): due for offset, due in self.pending.items()}:
            raise BrokenPromiseError(f"{believed} are believed to wait, and {self.pending} do")

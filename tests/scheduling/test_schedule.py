"""One partition's schedule, wish by wish; whole lives are in ``test_simulation.py``."""

from pathlib import Path

import pytest

from tests.scheduling.companion import Companion
from waystation.model.errors import CoordinatorLoadingError
from waystation.model.ids import LeaderEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.scheduling.checkpoint import CHECKPOINT
from waystation.scheduling.errors import InvalidScheduleError, NotPendingError, TooManyError
from waystation.scheduling.mover import Outcome, Send
from waystation.scheduling.schedule import Schedule
from waystation.scheduling.settings import ScheduleSettings
from waystation.storage.schedule_files import ScheduleFiles
from waystation.testing.disk import SimulatedDisk

TARGET = TopicPartition("orders", 3)
NOW = Millis(1_800_000_000_000)
FOLDER = Path("/p/schedule")
SETTINGS = ScheduleSettings(schedule_near_entries=1_000, schedule_retimed_max=2)


class Partition:
    """A log with one replica, whose every append is committed at once."""

    def __init__(self, settings: ScheduleSettings = SETTINGS) -> None:
        self.log, self.settings = Companion(), settings
        self.disk = SimulatedDisk()
        self.disk.make_directory(FOLDER.parent)
        self.open()

    def open(self) -> None:
        files = ScheduleFiles(self.disk, FOLDER)
        self.schedule = Schedule.opened(TARGET, files, self.settings, self.log.has)
        self.schedule.lead(LeaderEpoch(0), self.log.end)
        self.schedule.mover.enrol(ProducerId(7))
        self.feed()

    def feed(self) -> None:
        self.log.committed = self.log.end
        for batch in self.log.from_(self.schedule.applied):
            self.schedule.apply(batch)

    def at(self, *dues: int, producer: ProducerId | None = None) -> Offset:
        messages = [(b"", (("deliver-at", b"%d" % due),)) for due in dues]
        offset = self.log.produce(messages, NOW, producer)
        self.feed()
        return offset

    def cron(self, text: bytes) -> Offset:
        offset = self.log.produce([(b"", (("deliver-cron", text),))], NOW)
        self.feed()
        return offset

    def deliver(self, now: int) -> list[tuple[int, int]]:
        items = self.schedule.due(Millis(now))
        if items:
            self.log.decide(self.schedule.decide(items, Millis(now)), Millis(now))
            self.feed()
            (ask,) = self.schedule.mover.work(Millis(now))
            assert isinstance(ask, Send)
            self.schedule.mover.answered(ask.token, Outcome.DONE, Millis(now))
        return items

    def cancel(self, offset: int) -> None:
        wish = self.schedule.cancel(Offset(offset), self.log.row(Offset(offset)))
        self.log.decide(wish, NOW)
        self.feed()

    def retime(self, offset: int, to: int) -> None:
        row = self.log.row(Offset(offset))
        self.log.decide(self.schedule.retime(Offset(offset), row, Millis(to), NOW), NOW)
        self.feed()

    def due_of(self, offset: int) -> int:
        return self.schedule.look_up(Offset(offset), self.log.row(Offset(offset))).due

    def checkpoint(self) -> None:
        for step in self.schedule.upkeep():
            step()


def test_what_is_due_goes_by_time_and_then_by_offset() -> None:
    one = Partition()
    one.at(NOW + 5, NOW + 3, NOW + 5, NOW + 9)

    assert one.deliver(NOW + 2) == []
    assert one.deliver(NOW + 5) == [(NOW + 3, 1), (NOW + 5, 0), (NOW + 5, 2)]
    assert one.deliver(NOW + 5) == []
    assert one.schedule.next_due() == NOW + 9


def test_a_transaction_counts_from_its_end_and_nobody_waits_for_it() -> None:
    one = Partition()
    one.at(NOW + 1, producer=ProducerId(50))
    one.at(NOW + 2)
    one.at(NOW + 3, producer=ProducerId(51))

    assert one.deliver(NOW + 9) == [(NOW + 2, 1)]

    one.log.mark(ProducerId(50), committed=True, now=NOW)
    one.log.mark(ProducerId(51), committed=False, now=NOW)
    one.feed()

    assert one.deliver(NOW + 9) == [(NOW + 1, 0)]
    assert one.deliver(NOW + 9) == []


def test_a_cancelled_message_never_comes() -> None:
    one = Partition()
    one.at(NOW + 1, NOW + 2)
    one.cancel(0)

    assert one.deliver(NOW + 9) == [(NOW + 2, 1)]


def test_a_retimed_message_comes_then_and_not_before() -> None:
    one = Partition()
    one.at(NOW + 1)
    one.retime(0, NOW + 7)
    one.retime(0, NOW + 5)

    assert one.due_of(0) == NOW + 5
    assert one.deliver(NOW + 4) == []
    assert one.deliver(NOW + 5) == [(NOW + 5, 0)]


@pytest.mark.parametrize("restarts", [False, True])
def test_wishes_about_what_is_not_pending_say_why(restarts: bool) -> None:
    one = Partition()
    one.at(NOW + 1, NOW + 2, NOW + 3)
    one.deliver(NOW + 1)
    one.cancel(1)
    one.at(NOW + 1, producer=ProducerId(50))
    if restarts:
        one.checkpoint()
        one.open()
        one.deliver(NOW)

    for offset, why in [
        (0, "3-0 is not pending: it .*delivered"),
        (1, "3-1 is not pending: it was delivered or cancelled"),
        (5, "3-5 is not pending: its transaction is open"),
        (99, "3-99 is not pending: there is no such message yet"),
    ]:
        with pytest.raises(NotPendingError, match=why):
            one.cancel(offset)


def test_what_is_on_its_way_cannot_be_cancelled() -> None:
    one = Partition()
    one.at(NOW + 1, NOW + 2)
    decided = one.schedule.decide(one.schedule.due(Millis(NOW + 1)), Millis(NOW + 1))

    with pytest.raises(NotPendingError, match="being delivered or changed"):
        one.cancel(0)

    one.log.decide(decided, NOW)
    one.feed()
    with pytest.raises(NotPendingError, match="being delivered"):
        one.cancel(0)


def test_two_who_change_one_message_do_not_both_succeed() -> None:
    one = Partition()
    one.at(NOW + 1)
    one.schedule.cancel(Offset(0), one.log.row(Offset(0)))

    with pytest.raises(NotPendingError, match="being delivered or changed"):
        one.retime(0, NOW + 5)
    assert one.schedule.due(Millis(NOW + 9)) == []


def test_a_leader_that_has_not_read_its_log_changes_nothing() -> None:
    one = Partition()
    one.at(NOW + 1)
    one.schedule.lead(LeaderEpoch(1), Offset(one.log.end + 1))

    assert one.schedule.due(Millis(NOW + 9)) == []
    with pytest.raises(CoordinatorLoadingError, match="not loaded yet"):
        one.cancel(0)


def test_absurd_times_and_too_many_wishes_are_refused() -> None:
    one = Partition()
    one.at(*(NOW + 1 for _ in range(4)))

    with pytest.raises(InvalidScheduleError, match="horizon"):
        one.retime(0, NOW * 1_000)
    one.retime(0, NOW + 3)
    one.retime(1, NOW + 3)
    one.retime(1, NOW + 4)
    with pytest.raises(TooManyError, match=r"raise schedule\.retimed\.max"):
        one.retime(2, NOW + 3)


def test_a_recurring_message_comes_again_and_misses_are_not_made_up_for() -> None:
    one = Partition()
    minute = 60_000
    one.cron(b"* * * * *")
    due = one.due_of(0)

    assert one.deliver(due) == [(due, 0)]
    assert one.deliver(due + 5 * minute + 7) == [(due + minute, 0)]
    assert one.deliver(due + 5 * minute + 7) == []
    assert one.due_of(0) == due + 6 * minute

    one.cancel(0)
    assert one.deliver(due + 60 * minute) == []


def test_a_recurring_message_that_is_retimed_goes_back_to_its_rule() -> None:
    one = Partition()
    one.cron(b"0 * * * *")
    due = one.due_of(0)
    one.retime(0, due + 5)

    assert one.deliver(due + 4) == []
    assert one.deliver(due + 5) == [(due + 5, 0)]
    assert one.due_of(0) == due + 3_600_000


def test_too_many_recurring_messages_are_refused() -> None:
    one = Partition(ScheduleSettings(schedule_recurring_max=1))
    one.cron(b"@daily")

    one.schedule.check_recurring(0)
    with pytest.raises(TooManyError, match=r"cancel some, or raise schedule\.recurring\.max"):
        one.schedule.check_recurring(1)


def test_what_waits_is_listed_by_time_page_by_page() -> None:
    one = Partition()
    one.at(NOW + 4, NOW + 2, NOW + 3)
    one.checkpoint()
    one.at(NOW + 1)
    first, rest = one.schedule.pending(None, 3)
    assert rest is not None
    second, end = one.schedule.pending(rest, 3)

    assert [found.offset for found in (*first, *second)] == [3, 1, 2, 0]
    assert end is None


def test_a_restart_goes_on_from_the_checkpoint() -> None:
    one = Partition()
    one.at(*(NOW + due for due in range(50)))
    one.cron(b"@daily")
    one.retime(3, NOW + 100)
    one.checkpoint()
    one.deliver(NOW + 10)
    before = one.schedule.pending(None, 100)
    saved = one.schedule.saved
    one.open()

    assert saved > 0
    assert one.schedule.pending(None, 100) == before
    assert one.schedule.index.pending == len(before[0])


@pytest.mark.parametrize("damage", [b"", b"1 2\n{}", b"9 0\n"])
def test_a_damaged_checkpoint_is_replaced_by_the_log(damage: bytes) -> None:
    one = Partition()
    one.at(NOW + 1, NOW + 2)
    one.checkpoint()
    before = one.schedule.pending(None, 100)
    one.disk.replace(FOLDER / CHECKPOINT, damage)
    one.open()

    assert one.schedule.pending(None, 100) == before


def test_a_checkpoint_of_another_log_is_not_believed() -> None:
    """After an unclean election the log may have something else where the checkpoint ended."""
    one = Partition()
    one.at(NOW + 1, NOW + 2)
    one.checkpoint()
    one.log = Companion()
    one.log.epoch = LeaderEpoch(1)
    one.at(NOW + 7, NOW + 8)
    one.open()

    assert [found.due for found in one.schedule.pending(None, 9)[0]] == [NOW + 7, NOW + 8]


def test_a_flood_of_what_is_due_soon_does_not_stay_in_memory() -> None:
    one = Partition(ScheduleSettings(schedule_near_entries=100, schedule_batch_records=7))
    for start in range(0, 1_000, 50):
        one.at(*(NOW + start * 20 + due for due in range(50)))
    assert one.schedule._wheel is not None
    held = []
    delivered = []
    while some := one.deliver(NOW + 10**6):
        held.append(one.schedule._wheel.count)
        delivered += some

    assert max(held) <= 200
    assert delivered == sorted(delivered)
    assert len(delivered) == 1_000

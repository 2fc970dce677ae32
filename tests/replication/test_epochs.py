"""The leader epochs of a log, against a log that is simply a list of epochs."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from waystation.model.ids import NO_LEADER_EPOCH, LeaderEpoch
from waystation.model.offsets import Offset
from waystation.replication.epochs import UNKNOWN_EPOCH, EpochEnd, EpochStart, LeaderEpochs


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochStart(LeaderEpoch(e), Offset(s)) for e, s in entries)


def end_of(epochs: LeaderEpochs, epoch: int, log_end: int) -> EpochEnd:
    return epochs.end_of(LeaderEpoch(epoch), Offset(log_end))


def test_an_empty_history_knows_no_epoch() -> None:
    epochs = LeaderEpochs()

    assert epochs.latest == NO_LEADER_EPOCH
    assert end_of(epochs, 0, 10) == UNKNOWN_EPOCH
    assert epochs.epoch_at(Offset(3)) == NO_LEADER_EPOCH


def test_the_newest_epoch_ends_at_the_log_end() -> None:
    assert end_of(epochs_of((0, 0), (3, 10)), 3, 25) == (3, 25)


def test_an_older_epoch_ends_where_the_next_begins() -> None:
    epochs = epochs_of((0, 0), (3, 10), (7, 20))

    assert end_of(epochs, 0, 25) == (0, 10)
    assert end_of(epochs, 3, 25) == (3, 20)


def test_an_epoch_that_wrote_nothing_is_answered_by_the_one_before_it() -> None:
    assert end_of(epochs_of((0, 0), (3, 10), (7, 20)), 5, 25) == (3, 20)


def test_an_epoch_before_all_known_ends_where_the_log_begins() -> None:
    assert end_of(epochs_of((4, 100), (5, 120)), 2, 130) == (2, 100)


def test_an_epoch_after_all_known_is_unknown() -> None:
    assert end_of(epochs_of((0, 0), (3, 10)), 4, 25) == UNKNOWN_EPOCH
    assert end_of(epochs_of((0, 0), (3, 10)), -1, 25) == UNKNOWN_EPOCH


def test_assigning_the_current_epoch_again_is_no_news() -> None:
    epochs = epochs_of((0, 0))

    assert not epochs.assign(LeaderEpoch(0), Offset(50))
    assert epochs.assign(LeaderEpoch(1), Offset(50))
    assert not epochs.assign(LeaderEpoch(1), Offset(51))


def test_an_epoch_without_records_leaves_no_trace() -> None:
    assert epochs_of((0, 0), (1, 10), (2, 10)).entries == ((0, 0), (2, 10))


def test_advancing_the_start_keeps_the_epoch_that_covers_it() -> None:
    epochs = epochs_of((0, 0), (3, 10), (7, 20))

    assert epochs.advance_start(Offset(15))
    assert epochs.entries == ((3, 15), (7, 20))
    assert not epochs.advance_start(Offset(15))


def test_the_newest_epoch_survives_an_emptied_log() -> None:
    epochs = epochs_of((0, 0), (3, 10))
    epochs.advance_start(Offset(40))

    assert epochs.entries == ((3, 40),)


def test_truncation_forgets_the_epochs_of_the_tail() -> None:
    epochs = epochs_of((0, 0), (3, 10), (7, 20))

    assert not epochs.truncate_to(Offset(21))
    assert epochs.truncate_to(Offset(20))
    assert epochs.entries == ((0, 0), (3, 10))


def test_clearing_forgets_everything() -> None:
    epochs = epochs_of((0, 0), (3, 10))
    epochs.clear()

    assert epochs.entries == ()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_epochs_and_starts_rise_whatever_is_assigned(entries: list[tuple[int, int]]) -> None:
    known = epochs_of(*entries).entries

    assert all(a.epoch < b.epoch and a.start < b.start for a, b in pairwise(known))


class ListLog:
    """The obvious log: the epoch of every offset it holds."""

    def __init__(self) -> None:
        self.start, self.epoch = 0, 0
        self.written: list[int] = []
        self.epochs = LeaderEpochs()

    @property
    def end(self) -> int:
        return self.start + len(self.written)

    def append(self, count: int) -> None:
        self.epochs.assign(LeaderEpoch(self.epoch), Offset(self.end))
        self.written += [self.epoch] * count

    def truncate(self, count: int) -> None:
        count = min(count, len(self.written))
        self.written = self.written[: len(self.written) - count]
        self.epochs.truncate_to(Offset(self.end))
        self.epoch += 1

    def drop(self, count: int) -> None:
        count = min(count, len(self.written))
        self.start, self.written = self.start + count, self.written[count:]
        self.epochs.advance_start(Offset(self.start))


steps = st.lists(
    st.tuples(st.sampled_from(["append", "elect", "truncate", "drop"]), st.integers(1, 6)),
    max_size=30,
)


def play(history: list[tuple[str, int]]) -> ListLog:
    log = ListLog()
    for step, count in history:
        match step:
            case "append":
                log.append(count)
            case "elect":
                log.epoch += count
            case "truncate":
                log.truncate(count)
            case "drop":
                log.drop(count)
    return log


@given(steps)
def test_every_offset_held_has_the_epoch_that_wrote_it(history: list[tuple[str, int]]) -> None:
    """Appends, elections and cuts at both ends, in any order."""
    log = play(history)

    for at, epoch in enumerate(log.written, log.start):
        assert log.epochs.epoch_at(Offset(at)) == epoch


@given(steps, st.integers(0, 40))
def test_an_epoch_ends_before_the_first_offset_of_a_later_one(
    history: list[tuple[str, int]], asked: int
) -> None:
    log = play(history)
    answer = end_of(log.epochs, asked, log.end)

    if answer != UNKNOWN_EPOCH:
        later = [at for at, epoch in enumerate(log.written, log.start) if epoch > asked]
        assert answer.end == (later[0] if later else log.end)
        assert answer.epoch <= asked
    else:
        assert all(epoch < asked for epoch in log.written)


@given(steps, st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_the_answered_end_is_never_past_the_point_of_divergence(
    shared: list[tuple[str, int]], appends: list[int]
) -> None:
    """A deposed leader asks where its last epoch ends in the log of those who followed it."""
    deposed, leader = play(shared), play(shared)
    fork = deposed.end
    deposed.append(3)
    for count in appends:
        leader.epoch += 1
        leader.append(count)

    assert end_of(leader.epochs, deposed.epoch, leader.end).end == fork

"""What grows old goes, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.building import NOW, append, batch_of, flush, new_log, offsets
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.storage.log import Log
from waystation.storage.retention import due_bytes, retire
from waystation.testing.disk import SimulatedDisk

HOUR_MS = 3_600_000


def log_of(settings: TopicSettings, *timestamps: int) -> Log:
    """A log with one segment per timestamp."""
    log = new_log(SimulatedDisk(), settings)[1]
    for timestamp in timestamps:
        append(log, batch_of(b"x" * 400, timestamp=timestamp))
    flush(log)
    return log


def settings(retention_ms: int = -1, retention_bytes: int = -1) -> TopicSettings:
    return TopicSettings(
        segment_bytes=500, retention_ms=retention_ms, retention_bytes=retention_bytes
    )


def test_segments_older_than_retention_go() -> None:
    log = log_of(settings(retention_ms=HOUR_MS), *(NOW - hours * HOUR_MS for hours in (5, 2, 0, 0)))
    size_bytes = log.size_bytes

    freed = retire(log, NOW, log.log_end)

    assert offsets(log) == [2, 3]
    assert (log.log_start, freed) == (2, size_bytes // 2)
    assert log.size_bytes == size_bytes - freed


def test_a_young_segment_keeps_older_ones_behind_it() -> None:
    log = log_of(settings(retention_ms=HOUR_MS), NOW, NOW - 5 * HOUR_MS, NOW)

    assert retire(log, NOW, log.log_end) == 0


def test_the_active_segment_goes_when_all_of_it_has_expired() -> None:
    log = log_of(settings(retention_ms=HOUR_MS), NOW - 5 * HOUR_MS, NOW - 4 * HOUR_MS)

    assert retire(log, NOW, log.log_end) > 0
    assert (offsets(log), log.log_start, log.log_end) == ([2], 2, 2)
    assert append(log, batch_of(b"next")).base_offset == 2


def test_records_without_a_timestamp_do_not_expire() -> None:
    log = log_of(settings(retention_ms=HOUR_MS), -1, -1, NOW)

    assert retire(log, NOW, log.log_end) == 0


def test_the_oldest_go_until_the_rest_fits() -> None:
    log = log_of(settings(retention_bytes=1_000), *[NOW] * 5)
    one = log.active.size_bytes

    assert retire(log, NOW, log.log_end) == 2 * one
    assert offsets(log) == [2, 3, 4]
    assert log.size_bytes >= 1_000


def test_nothing_goes_that_is_not_committed() -> None:
    log = log_of(settings(retention_ms=HOUR_MS), *[NOW - 5 * HOUR_MS] * 4)

    retire(log, NOW, Offset(2))

    assert offsets(log)[0] == 2


@pytest.mark.parametrize("keep", [settings(), settings(retention_bytes=10_000)])
def test_without_limits_everything_stays(keep: TopicSettings) -> None:
    log = log_of(keep, *[0] * 4)

    assert retire(log, NOW, log.log_end) == 0
    assert log.log_start == 0


def test_quiet_producers_are_forgotten_too() -> None:
    log = new_log(SimulatedDisk())[1]
    append(log, batch_of(b"a", producer=1, sequence=0))

    retire(log, Millis(NOW + 24 * HOUR_MS), Offset(0))
    assert len(log.producers) == 1

    retire(log, Millis(NOW + 24 * HOUR_MS + 1), Offset(0))
    assert len(log.producers) == 0


# --- what is kept for an archive ------------------------------------------------------------


def test_what_is_not_archived_stays_however_old_it_is() -> None:
    log = log_of(settings(retention_ms=HOUR_MS), *[NOW - 5 * HOUR_MS] * 4)
    one = log.active.size_bytes

    assert retire(log, NOW, log.log_end, Offset(0)) == 0
    assert due_bytes(log, NOW, log.log_end) == 4 * one

    assert retire(log, NOW, log.log_end, Offset(3)) == 3 * one
    assert (log.log_start, due_bytes(log, NOW, log.log_end)) == (3, one)

    assert retire(log, NOW, log.log_end, Offset(4)) == one
    assert (log.log_start, due_bytes(log, NOW, log.log_end)) == (4, 0)


def test_what_is_not_archived_stays_however_much_it_is() -> None:
    log = log_of(settings(retention_bytes=1_000), *[NOW] * 5)
    one = log.active.size_bytes

    assert retire(log, NOW, log.log_end, Offset(1)) == one
    assert (offsets(log)[0], due_bytes(log, NOW, log.log_end)) == (1, one)

    assert retire(log, NOW, log.log_end, log.log_end) == one
    assert (offsets(log)[0], due_bytes(log, NOW, log.log_end)) == (2, 0)


def test_a_segment_goes_when_all_of_it_is_archived() -> None:
    log = new_log(SimulatedDisk(), settings(retention_bytes=0))[1]
    for _ in range(2):
        append(log, batch_of(*[b"x" * 100] * 4, timestamp=NOW))
    flush(log)

    for archived in range(4):
        assert retire(log, NOW, log.log_end, Offset(archived)) == 0
    assert retire(log, NOW, log.log_end, Offset(4)) > 0
    assert log.log_start == 4


def test_an_archive_ahead_of_the_log_lets_nothing_go_that_is_not_committed() -> None:
    log = log_of(settings(retention_ms=HOUR_MS), *[NOW - 5 * HOUR_MS] * 4)

    retire(log, NOW, Offset(2), Offset(99))

    assert log.log_start == 2


@given(
    ages=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    retention_ms=st.sampled_from([-1, HOUR_MS, 3 * HOUR_MS]),
    retention_bytes=st.sampled_from([-1, 0, 1_000]),
    archived=st.lists(st.integers(0, 10), max_size=5),
)
def test_retention_never_passes_the_archive_and_ends_where_it_would_have_without(
    ages: list[int], retention_ms: int, retention_bytes: int, archived: list[int]
) -> None:
    times = [NOW - age * HOUR_MS - 1 for age in sorted(ages, reverse=True)]
    kept, plain = (log_of(settings(retention_ms, retention_bytes), *times) for _ in range(2))
    retire(plain, NOW, plain.log_end)
    for position in sorted(archived):
        retire(kept, NOW, kept.log_end, Offset(position))

        assert kept.log_start <= position
        assert kept.size_bytes - due_bytes(kept, NOW, kept.log_end) == plain.size_bytes

    retire(kept, NOW, kept.log_end, kept.log_end)
    assert (kept.log_start, kept.size_bytes) == (plain.log_start, plain.size_bytes)

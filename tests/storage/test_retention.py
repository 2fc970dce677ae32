"""What grows old goes, and nothing else."""

import pytest

from tests.storage.building import NOW, append, batch_of, flush, new_log, offsets
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.storage.log import Log
from waystation.storage.retention import retire
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

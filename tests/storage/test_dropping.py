"""What everybody is done with goes; and reads that end with a given offset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.building import NOW, append, batch_of, flush, new_log, offsets
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.control import Marker, marker_batch
from waystation.records.header import batches
from waystation.storage import retention
from waystation.storage.log import Log
from waystation.storage.retention import drop, fits_from
from waystation.testing.disk import SimulatedDisk

SEGMENTED = TopicSettings(segment_bytes=500)
ONE = TopicSettings()


def log_of(settings: TopicSettings, *sizes: int) -> Log:
    """A log with batches of so many records."""
    log = new_log(SimulatedDisk(), settings)[1]
    for size in sizes:
        append(log, batch_of(*[b"x" * (400 // size)] * size))
    flush(log)
    return log


def test_segments_before_an_offset_go_whole() -> None:
    log = log_of(SEGMENTED, 2, 2, 2, 2)
    size_bytes = log.size_bytes

    assert drop(log, NOW, Offset(3)) == size_bytes // 4
    assert (offsets(log), log.log_start) == ([2, 4, 6], 2)
    assert drop(log, NOW, Offset(3)) == 0


def test_the_active_segment_goes_when_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(ONE, 1, 1)
    assert drop(log, NOW, Offset(2)) == 0, "it is young and small"

    assert drop(log, Millis(NOW + 61_000), Offset(1)) == 0, "a part of it is needed"
    assert drop(log, Millis(NOW + 61_000), Offset(2)) > 0

    assert (log.log_start, log.log_end, log.size_bytes) == (2, 2, 0)
    monkeypatch.setattr(retention, "_LITTLE_BYTES", 100)
    append(log, batch_of(b"x" * 400))
    assert drop(log, NOW, Offset(3)) > 0


def test_a_large_segment_is_closed_when_a_part_of_it_may_go() -> None:
    log = log_of(ONE, 1, 1, 1)

    assert drop(log, NOW, Offset(1), roll_bytes=100) == 0
    append(log, batch_of(b"next"))

    assert len(log.segments) == 2
    assert drop(log, NOW, Offset(3), roll_bytes=1 << 20) > 0
    assert log.log_start == 3


def test_nothing_goes_of_what_is_only_compacted() -> None:
    log = log_of(TopicSettings(segment_bytes=500, cleanup_policy=("compact",)), 1, 1, 1)

    assert drop(log, NOW, log.log_end) == 0


def test_a_cap_counts_whole_segments() -> None:
    log = log_of(SEGMENTED, 1, 1, 1, 1)
    each = log.size_bytes // 4

    assert fits_from(log, log.size_bytes) is None
    assert fits_from(log, 2 * each) == 2
    assert fits_from(log, 2 * each - 1) == 3
    assert fits_from(log, 0) == 3, "the active segment stays"


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_a_read_ends_with_the_batch_of_an_offset(sizes: list[int], data: st.DataObject) -> None:
    log = log_of(TopicSettings(segment_bytes=2_000), *sizes)
    first = Offset(data.draw(st.integers(0, log.log_end - 1)))
    found = log.read(first, 1 << 20, log.log_end)
    last = Offset(data.draw(st.integers(first, found.next_offset - 1)))

    shorter = log.shorten(found, last)

    assert shorter.region is not None
    headers = [header for _, header in batches(memoryview(shorter.region.read()))]
    assert headers[0].base_offset <= first < headers[0].next_offset
    assert headers[-1].base_offset <= last < headers[-1].next_offset == shorter.next_offset
    whole = found.region.read() if found.region is not None else b""
    assert whole.startswith(shorter.region.read())


def test_a_log_knows_from_where_on_every_offset_has_a_record() -> None:
    log = log_of(ONE, 2)
    assert log.plain_from == 0

    marker = Marker(ProducerId(1), ProducerEpoch(0), 0, True)
    log.append_marker(memoryview(marker_batch(marker, NOW)), marker, LeaderEpoch(0), NOW)
    assert log.plain_from == 3

    append(log, batch_of(b"x"))
    assert log.plain_from == 3

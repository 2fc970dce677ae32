"""The table of metrics: amended in one commit per batch, each batch once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from waystation.pipelines.failures import JobError
from waystation.pipelines.metrics_report import _series, render
from waystation.pipelines.metrics_table import MetricsTable, Row
from waystation.pipelines.metrics_windows import Figures, Windows

MINUTE_MS = 60_000
START_MS = 1_767_225_600_000  # 2026-01-01
QUERY = "a-query"


def figures(messages: int, key: str = "k", age_ms: int = 100) -> Figures:
    return Figures(
        messages=messages,
        payload_bytes=10 * messages,
        newest_ms=START_MS,
        age_max_ms=age_ms,
        ages={40: messages},
        keys={key: messages},
    )


def windows(*counts: tuple[int, str, int]) -> Windows:
    """Minute, topic, messages."""
    return Windows(
        {(START_MS + at * MINUTE_MS, topic): figures(messages) for at, topic, messages in counts}
    )


def amend(to: str, batch: int, found: Windows) -> None:
    table = MetricsTable.made(to, MINUTE_MS)
    table.claim(QUERY)
    if not table.has(QUERY, batch):
        table.amend(QUERY, batch, found, capacity=100)


def counts(to: str) -> dict[tuple[datetime, str], int]:
    return {(row.window_start, row.topic): row.messages for row in MetricsTable.open(to).rows()}


def at(minute: int) -> datetime:
    return datetime.fromtimestamp(START_MS / 1_000 + 60 * minute, UTC)


def test_later_batches_amend_the_windows_of_earlier_ones(tmp_path: Path) -> None:
    to = str(tmp_path / "metrics")
    amend(to, 0, windows((0, "a", 5), (0, "b", 1)))
    amend(to, 1, windows((0, "a", 2), (1, "a", 3)))
    # A day later something of the first minute comes: two days in one commit.
    amend(to, 2, windows((0, "a", 1), (1_440, "a", 9)))

    assert counts(to) == {
        (at(0), "a"): 8,
        (at(0), "b"): 1,
        (at(1), "a"): 3,
        (at(1_440), "a"): 9,
    }
    first = MetricsTable.open(to).rows(top_keys=5)[0]
    assert (first.bytes, first.age_max_ms, first.top_keys) == (80, 100, [("k", 8)])


def test_a_repeated_batch_changes_nothing(tmp_path: Path) -> None:
    to = str(tmp_path / "metrics")
    for batch in (0, 0, 1, 0, 1):
        amend(to, batch, windows((0, "a", 5)))

    assert counts(to) == {(at(0), "a"): 10}


def test_another_checkpoint_is_refused(tmp_path: Path) -> None:
    to = str(tmp_path / "metrics")
    amend(to, 0, windows((0, "a", 5)))

    with pytest.raises(JobError, match="another checkpoint"):
        MetricsTable.open(to).claim("another-query")


def test_windows_of_another_length_are_refused(tmp_path: Path) -> None:
    to = str(tmp_path / "metrics")
    MetricsTable.made(to, MINUTE_MS)

    with pytest.raises(JobError, match="windows of 60 s, not of 10 s"):
        MetricsTable.made(to, 10_000)


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    to = str(tmp_path / "lake")
    write_deltalake(to, pa.table({"x": [1]}))

    with pytest.raises(JobError, match="a table of something else"):
        MetricsTable.made(to, MINUTE_MS)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    with pytest.raises(JobError, match=f"{file}/metrics cannot be written"):
        MetricsTable.made(str(file / "metrics"), MINUTE_MS)


def test_the_youngest_record_of_each_topic_is_remembered(tmp_path: Path) -> None:
    to = str(tmp_path / "metrics")
    amend(to, 0, windows((0, "a", 5), (0, "b", 1)))

    assert MetricsTable.open(to).newest_ms() == {"a": START_MS, "b": START_MS}


def test_tidying_joins_files_and_changes_no_figure(tmp_path: Path) -> None:
    to = str(tmp_path / "metrics")
    for batch in range(4):
        amend(to, batch, windows((batch, "a", 1)))
    before = len(DeltaTable(to).file_uris())
    MetricsTable.open(to).tidy()

    assert (before, len(DeltaTable(to).file_uris())) == (4, 1)
    assert counts(to) == {(at(minute), "a"): 1 for minute in range(4)}
    amend(to, 3, windows((3, "a", 1)))
    assert counts(to)[at(3), "a"] == 1, "tidying forgot which batches there were"


def test_the_page_shows_topics_and_keys(tmp_path: Path) -> None:
    to = str(tmp_path / "metrics")
    amend(to, 0, windows((0, "orders", 5), (1, "orders", 7)))
    page = render(to)

    assert page == tmp_path / "metrics-report.html"
    text = page.read_text()
    assert text.count("<svg") == 4
    assert "orders" in text
    assert '<td class="number">12</td>' in text
    assert "refresh" not in text


def test_a_topic_that_was_silent_is_not_drawn_as_if_it_were_not() -> None:
    rows = [Row(at(minute), "a", 7, 0, 0, 0, 0, 0, []) for minute in (0, 1, 5)]
    times, values = _series(rows, timedelta(minutes=1), lambda row: row.messages, 0.0)

    assert list(times) == [at(minute) for minute in (0, 1, 2, 4, 5)]
    assert list(values) == [7, 7, 0, 0, 7]


def test_an_empty_table_has_a_page_too(tmp_path: Path) -> None:
    to = str(tmp_path / "metrics")
    MetricsTable.made(to, MINUTE_MS)

    assert "empty so far" in render(to, running=True).read_text()


def test_no_table_is_an_error_that_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="waystation pipeline metrics"):
        render(str(tmp_path / "nowhere"))

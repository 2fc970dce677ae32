"""The page of ``metrics``: the last day of every topic in plots, and who wrote most."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path

from waystation.pipelines.metrics_table import MetricsTable, Row
from waystation.pipelines.plots import Series, lines
from waystation.pipelines.report import (
    Section,
    Table,
    page,
    report_path,
    shown_bytes,
    shown_count,
    shown_duration,
    write_page,
)

__all__ = ["render"]

_SHOWN_WINDOWS = 1_440
_SHOWN_TOPICS = 12
_REFRESH_S = 15


def render(to: str, path: Path | None = None, *, top_keys: int = 10, running: bool = False) -> Path:
    """Write the page of the table at ``to``, beside it or at ``path``.

    ``running`` says that a job goes on amending the table: then the page reloads itself.
    """
    table = MetricsTable.open(to)
    window = timedelta(milliseconds=table.window_ms)
    # Windows of records from the future would push all others off the page.
    youngest = table.newest_window(until=datetime.now(UTC))
    rows = (
        []
        if youngest is None
        else table.rows(since=youngest - _SHOWN_WINDOWS * window, top_keys=top_keys)
    )
    document = _document(to, rows, window, top_keys, running)
    return write_page(path or report_path(to), document)


def _document(to: str, rows: Sequence[Row], window: timedelta, top_keys: int, running: bool) -> str:
    by_topic = _busiest(rows)
    window_s = window.total_seconds()

    def per_s(name: str) -> Callable[[Row], float]:
        return lambda row: getattr(row, name) / window_s

    sections = [
        Section(
            "Over time",
            f"Windows of {shown_duration(window_s * 1_000)}; the last one may not be over. Age is "
            "the time from a record's timestamp until this job saw it.",
            [
                _plot("messages per second", by_topic, window, per_s("messages"), shown_count),
                _plot("bytes per second", by_topic, window, per_s("bytes"), shown_bytes),
                _plot("age, 99th percentile", by_topic, window, _p99, shown_duration, nan),
                _plot("age, median", by_topic, window, _p50, shown_duration, nan),
            ],
        ),
        Section("Topics", tables=[_topics(by_topic)]),
        Section(
            "Keys",
            f"The {top_keys} most frequent keys of each topic; a count may be a little too low.",
            tables=[_keys(by_topic, top_keys)],
        ),
    ]
    return page(
        "Metrics",
        f"From the table at {to}"
        + (
            f", {rows[0].window_start:%Y-%m-%d %H:%M} UTC to "
            f"{rows[-1].window_start:%Y-%m-%d %H:%M} UTC."
            if rows
            else "; it is empty so far."
        ),
        (
            ("topics", shown_count(len({row.topic for row in rows}))),
            ("messages", shown_count(sum(row.messages for row in rows))),
            ("bytes", shown_bytes(sum(row.bytes for row in rows))),
            ("late", shown_count(sum(row.late for row in rows))),
            ("oldest when seen", shown_duration(max((row.age_max_ms for row in rows), default=0))),
        ),
        sections,
        refresh_s=_REFRESH_S if running else None,
    )


def _p99(row: Row) -> float:
    return row.age_p99_ms


def _p50(row: Row) -> float:
    return row.age_p50_ms


def _busiest(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by topic, those with most messages first."""
    by_topic: dict[str, list[Row]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row)
    order = sorted(by_topic, key=lambda name: -sum(row.messages for row in by_topic[name]))
    return {name: by_topic[name] for name in order}


def _plot(
    title: str,
    by_topic: dict[str, list[Row]],
    window: timedelta,
    figure: Callable[[Row], float],
    shown: Callable[[float], str],
    silence: float = 0.0,
) -> str:
    series = {
        name: _series(rows, window, figure, silence)
        for name, rows in list(by_topic.items())[:_SHOWN_TOPICS]
    }
    return lines(title, series, shown=shown)


def _series(
    rows: list[Row], window: timedelta, figure: Callable[[Row], float], silence: float
) -> Series:
    """A line that says ``silence`` where windows are missing, instead of going straight on."""
    times: list[datetime] = []
    values: list[float] = []
    for row in rows:
        if times and row.window_start - times[-1] > window:
            times += [times[-1] + window, row.window_start - window]
            values += [silence, silence]
        times.append(row.window_start)
        values.append(figure(row))
    return times, values


def _topics(by_topic: dict[str, list[Row]]) -> Table:
    titles = ("TOPIC", "MESSAGES", "BYTES", "MEAN SIZE", "LATE", "MEDIAN AGE", "OLDEST")
    return Table(titles, [_topic(name, rows) for name, rows in by_topic.items()])


def _topic(name: str, rows: list[Row]) -> tuple[object, ...]:
    messages, size = sum(row.messages for row in rows), sum(row.bytes for row in rows)
    middle = sorted(row.age_p50_ms for row in rows)[len(rows) // 2]
    return (
        name,
        messages,
        shown_bytes(size),
        shown_bytes(size / max(messages, 1)),
        sum(row.late for row in rows),
        shown_duration(middle),
        shown_duration(max(row.age_max_ms for row in rows)),
    )


def _keys(by_topic: dict[str, list[Row]], top_keys: int) -> Table:
    rows: list[tuple[object, ...]] = []
    for name, windows in by_topic.items():
        counts: dict[str, int] = {}
        for window in windows:
            for key, messages in window.top_keys:
                counts[key] = counts.get(key, 0) + messages
        most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:top_keys]
        rows += [(name, key, messages) for key, messages in most]
    return Table(("TOPIC", "KEY", "MESSAGES"), rows)

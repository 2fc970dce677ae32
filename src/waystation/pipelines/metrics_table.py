"""The table of ``metrics``: one row per window and topic, amended as long as records come.

A batch amends all its windows in one commit of the Delta table, and the same commit says which
batch it was.  A batch that Spark repeats after a crash finds itself there and changes nothing;
one that was killed before its commit has changed nothing either.

A table belongs to one query, that is to one checkpoint: with another one, Spark would count from
the beginning what the table has already.  That is refused.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from waystation.pipelines.failures import JobError
from waystation.pipelines.metrics_windows import Figures, WindowKey, Windows

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

__all__ = ["MetricsTable", "Row", "row_of"]

_WINDOW, _QUERY = "waystation.metrics.window.ms", "waystation.metrics.query"
_TIDY_EVERY = 50
_SCHEMA_NAMES = (
    "window_start",
    "window_end",
    "date",
    "topic",
    "messages",
    "bytes",
    "messages_per_s",
    "bytes_per_s",
    "age_p50_ms",
    "age_p99_ms",
    "age_max_ms",
    "late",
    "newest",
    "top_keys",
    "ages",
)


class Row(NamedTuple):
    """What the report shows of one window."""

    window_start: datetime
    topic: str
    messages: int
    bytes: int
    age_p50_ms: int
    age_p99_ms: int
    age_max_ms: int
    late: int
    top_keys: list[tuple[str, int]]


class MetricsTable:
    """The Delta table at ``to``, as it was when this object was made."""

    def __init__(self, table: "DeltaTable") -> None:
        self._table = table
        configured = table.metadata().configuration
        if _WINDOW not in configured:
            raise JobError(
                f"{table.table_uri} is a table of something else: give --to another folder"
            )
        self.window_ms = int(configured[_WINDOW])
        self.query: str | None = configured.get(_QUERY)

    @staticmethod
    def is_there(to: str) -> bool:
        """Whether there is a table, of whatever kind."""
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(to))

    @classmethod
    def open(cls, to: str) -> "MetricsTable":
        """The table that is there."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return cls(DeltaTable(to))
        except TableNotFoundError:
            raise JobError(
                f"there is no table of metrics at {to}: `waystation pipeline metrics` makes one"
            ) from None

    @classmethod
    def made(cls, to: str, window_ms: int) -> "MetricsTable":
        """The table, made if it is not there; it must have windows of this length."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if cls.is_there(to):
            table = cls.open(to)
            if table.window_ms != window_ms:
                raise JobError(
                    f"the table at {to} has windows of {table.window_ms / 1_000:g} s, not of "
                    f"{window_ms / 1_000:g} s: keep to them, or give another folder"
                )
            return table
        try:
            made = DeltaTable.create(
                to,
                schema=_schema(),
                partition_by=["date"],
                configuration={
                    _WINDOW: str(window_ms),
                    "delta.deletedFileRetentionDuration": "interval 1 hours",
                    "delta.logRetentionDuration": "interval 7 days",
                },
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            raise JobError(f"{to} cannot be written: {error}") from error
        return cls(made)

    def claim(self, query: str) -> None:
        """Make the table that of ``query``; raises if it is another's."""
        if self.query == query:
            return
        if self.query is not None:
            raise JobError(
                f"the table at {self._table.table_uri} was filled with another checkpoint (query "
                f"{self.query}); with this one everything would be counted again: use that "
                "checkpoint, or give --to another folder"
            )
        self._table.alter.set_table_properties({_QUERY: query}, raise_if_not_exists=False)
        self.query = query

    def has(self, query: str, batch: int) -> bool:
        """Whether this batch has amended the table already."""
        last = self._table.transaction_version(query)
        return last is not None and last >= batch

    def newest_ms(self) -> dict[str, int]:
        """The youngest record seen of each topic."""
        found = self._query("SELECT topic, max(newest) AS newest FROM t GROUP BY topic")
        return {one["topic"]: _ms(one["newest"]) for one in found}

    def amend(self, query: str, batch: int, windows: Windows, capacity: int) -> None:
        """Add the figures of a batch to those that are there, in one commit."""
        from deltalake import CommitProperties, Transaction

        for where, before in self.figures(windows).items():
            windows[where].add(before, capacity)
        rows = [row_of(where, windows[where], self.window_ms) for where in sorted(windows)]
        merging = self._table.merge(
            _arrow(rows),
            "t.date = s.date AND t.window_start = s.window_start AND t.topic = s.topic",
            source_alias="s",
            target_alias="t",
            commit_properties=CommitProperties(app_transactions=[Transaction(query, batch)]),
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()
        if batch % _TIDY_EVERY == _TIDY_EVERY - 1:
            self.tidy()

    def tidy(self) -> None:
        """Join the small files of days that are over, and delete those that nobody reads."""
        today = datetime.now(UTC).date().isoformat()
        self._table.optimize.compact(partition_filters=[("date", "<", today)])
        self._table.vacuum(dry_run=False)

    def rows(self, *, since: datetime | None = None, top_keys: int = 0) -> list[Row]:
        """The windows in their order, the youngest last."""
        when = f"WHERE {_from(since)}" if since is not None else ""
        keys = ", top_keys" if top_keys else ""
        told = self._query(
            "SELECT window_start, topic, messages, bytes, age_p50_ms, age_p99_ms, age_max_ms, "
            f"late{keys} FROM t {when} ORDER BY window_start, topic"
        )
        return [
            Row(
                **{
                    **one,
                    "top_keys": [
                        (each["key"], each["messages"])
                        for each in (one.get("top_keys") or [])[:top_keys]
                    ],
                }
            )
            for one in told
        ]

    def newest_window(self, *, until: datetime) -> datetime | None:
        """When the youngest window begins that begins before ``until``."""
        found = self._query(
            f"SELECT max(window_start) AS youngest FROM t WHERE window_start <= {_literal(until)}"
        )
        youngest: datetime | None = found[0]["youngest"] if found else None
        return youngest

    def figures(self, windows: Iterable[WindowKey]) -> Windows:
        """What the table has of these windows; they may be many, and far apart."""
        found = Windows()
        for day, keys in _by_day(windows).items():
            first, last = min(keys), max(keys)
            told = self._query(
                "SELECT window_start, topic, messages, bytes, late, newest, age_max_ms, ages, "
                f"top_keys FROM t WHERE date = '{day}' AND {_from(_moment(first[0]))} "
                f"AND window_start <= {_literal(_moment(last[0]))}"
            )
            wanted = set(keys)
            for one in told:
                where = (_ms(one["window_start"]), one["topic"])
                if where in wanted:
                    found[where] = _figures(one)
        return found

    # --- behind the scenes --------------------------------------------------------------------

    def _query(self, text: str) -> list[dict[str, Any]]:
        # By Delta's own engine: datasets of pyarrow over it may abort the process at its end.
        import pyarrow as pa
        from deltalake import QueryBuilder

        answer = QueryBuilder().register("t", self._table).execute(text)
        rows: list[dict[str, Any]] = pa.table(answer).to_pylist()
        return rows


def _by_day(windows: Iterable[WindowKey]) -> dict[date, list[WindowKey]]:
    days: dict[date, list[WindowKey]] = {}
    for where in windows:
        days.setdefault(_moment(where[0]).date(), []).append(where)
    return days


def row_of(where: WindowKey, figures: Figures, window_ms: int) -> dict[str, Any]:
    """One window, with the columns of the table."""
    start = _moment(where[0])
    window_s = window_ms / 1_000
    return {
        "window_start": start,
        "window_end": start + timedelta(milliseconds=window_ms),
        "date": start.date(),
        "topic": where[1],
        "messages": figures.messages,
        "bytes": figures.payload_bytes,
        "messages_per_s": figures.messages / window_s,
        "bytes_per_s": figures.payload_bytes / window_s,
        "age_p50_ms": figures.age_ms(0.5),
        "age_p99_ms": figures.age_ms(0.99),
        "age_max_ms": figures.age_max_ms,
        "late": figures.late,
        "newest": _moment(figures.newest_ms),
        "top_keys": [{"key": key, "messages": n} for key, n in figures.top_keys()],
        "ages": [{"bucket": one, "messages": figures.ages[one]} for one in sorted(figures.ages)],
    }


def _figures(row: Mapping[str, Any]) -> Figures:
    return Figures(
        messages=row["messages"],
        payload_bytes=row["bytes"],
        late=row["late"],
        newest_ms=_ms(row["newest"]),
        age_max_ms=row["age_max_ms"],
        ages={one["bucket"]: one["messages"] for one in row["ages"]},
        keys={one["key"]: one["messages"] for one in row["top_keys"]},
    )


def _schema() -> "pa.Schema":
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    types = (
        *(moment, moment, pa.date32(), pa.string()),
        *(pa.int64(), pa.int64(), pa.float64(), pa.float64()),
        *(pa.int64(), pa.int64(), pa.int64(), pa.int64(), moment),
        pa.list_(pa.struct([("key", pa.string()), ("messages", pa.int64())])),
        pa.list_(pa.struct([("bucket", pa.int32()), ("messages", pa.int64())])),
    )
    return pa.schema(list(zip(_SCHEMA_NAMES, types, strict=True)))


def _arrow(rows: list[dict[str, Any]]) -> "pa.Table":
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=_schema())


def _moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def _literal(moment: datetime) -> str:
    return f"to_timestamp_micros({_ms(moment) * 1_000})"


def _from(moment: datetime) -> str:
    return f"date >= '{moment.date()}' AND window_start >= {_literal(moment)}"

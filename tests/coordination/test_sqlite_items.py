"""The SQLite file by itself: what a refused write leaves."""

from pathlib import Path

import pytest

from waystation.coordination.sqlite_items import SqliteItems
from waystation.model.errors import StoreUnavailableError


def test_a_write_that_does_not_fit_is_undone_and_the_next_one_works(tmp_path: Path) -> None:
    items = SqliteItems(tmp_path / "coordination.db")
    items.txn({}, {"a": b"1"}, (), {})
    before = items.get("")
    items._db.execute("PRAGMA max_page_count = 8")

    with pytest.raises(StoreUnavailableError, match="full"):
        items.txn({}, {"a": b"2", "b": bytes(100_000)}, (), {})
    assert items.get("") == before

    items._db.execute("PRAGMA max_page_count = 10000")
    result, change = items.txn({"b": 0}, {"b": b"3"}, (), {})

    assert result.succeeded
    assert change
    assert change.revision == before.revision + 1
    items.close()


def test_versions_never_repeat_although_an_answer_was_lost(tmp_path: Path) -> None:
    """A commit that failed on its way back: the file is one revision ahead of us."""
    items = SqliteItems(tmp_path / "coordination.db")
    first, _ = items.txn({}, {"a": b"1"}, (), {})
    items.revision -= 1

    second, _ = items.txn({}, {"a": b"2"}, (), {})

    assert second.versions["a"] > first.versions["a"]
    items.close()


def test_a_transaction_that_breaks_half_way_is_undone(tmp_path: Path) -> None:
    items = SqliteItems(tmp_path / "coordination.db")

    with pytest.raises(StoreUnavailableError):
        items.txn({}, {"a": b"1", "b": object()}, (), {})  # type: ignore[dict-item]
    assert items.get("").items == {}
    assert items.txn({}, {"a": b"1"}, (), {})[0].succeeded
    items.close()

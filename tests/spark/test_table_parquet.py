"""The log of a Parquet table, which is our own."""

import os
from pathlib import Path

import pytest

from tests.spark.rows import rows
from tests.spark.tables import FIRST, offsets, opened, read, write_and_commit
from waystation.spark.table_cleaning import vacuum


def test_a_parquet_table_is_read_from_its_last_summary_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.spark.table_parquet._SUMMED_UP_EVERY", 3)
    target = opened(tmp_path / "lake", "parquet")

    for batch in range(7):
        write_and_commit(target, FIRST._replace(batch=batch), rows([batch]))

        assert offsets(target) == [*range(batch + 1)]

    assert len(read(tmp_path / "lake", version="5")) == 5
    for version in range(1, 6):
        (tmp_path / "lake" / "_waystation" / f"{version:020d}.json").write_text("not read")
    assert offsets(target) == [*range(7)]
    assert vacuum(target.location.path, older_than_hours=0) == []


def test_the_log_of_a_commit_that_failed_half_way_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry is linked into place whole: its draft counts for nothing."""
    target = opened(tmp_path / "lake", "parquet")

    def refuse(*_: object) -> None:
        raise OSError("no link for you")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with pytest.raises(OSError, match="no link"):
            write_and_commit(target, FIRST, rows([0]))

    assert offsets(target) == []
    write_and_commit(target, FIRST, rows([0]))
    assert offsets(target) == [0]

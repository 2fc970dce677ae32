"""A history survives the disk, a death in the middle of a line, and nothing worse unnoticed."""

from pathlib import Path

import pytest

from waystation.model.ids import TopicPartition
from waystation.testing.history import (
    Diary,
    Event,
    HistoryDamagedError,
    HistoryFile,
    Seen,
    Span,
    Written,
    read_histories,
)

WHERE = TopicPartition("orders", 3)


def everything(diary: Diary) -> None:
    """One event of each kind."""
    number = diary.begin()
    (value,) = diary.sending(number, 1)
    diary.acknowledged([Written(*WHERE, 17, value.number)])
    diary.consuming(number, "billing", [Span(*WHERE, 0, 5)])
    diary.deciding(number, commit=True)
    diary.ended(number, committed=True)
    diary.sending(None, 2)
    diary.seeking(WHERE, 0)
    diary.polled(WHERE, 18, [Seen(17, "w", 0)])
    diary.finished(WHERE, 18, 0)
    diary.note("the broker dies")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    kept: list[Event] = []
    with HistoryFile(tmp_path / "w.jsonl") as file:

        def write(event: Event) -> None:
            kept.append(event)
            file.write(event)

        everything(Diary("w", write))

    assert len(kept) == 11
    assert list(read_histories([file.path])) == kept


def test_values_and_transactions_are_numbered_in_order() -> None:
    diary = Diary("w", lambda _: None)

    assert [diary.begin(), diary.begin()] == [0, 1]
    assert [str(one) for one in diary.sending(0, 2) + diary.sending(1, 1)] == ["w:0", "w:1", "w:2"]


def test_nothing_acknowledged_is_no_event() -> None:
    kept: list[Event] = []
    Diary("w", kept.append).acknowledged([])

    assert kept == []


def test_a_line_that_a_death_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    with HistoryFile(path) as file:
        everything(Diary("w", file.write))
    whole = list(read_histories([path]))

    path.write_bytes(path.read_bytes()[:-5])

    assert list(read_histories([path])) == whole[:-1]


def test_several_files_are_one_history(tmp_path: Path) -> None:
    for process in "ab":
        with HistoryFile(tmp_path / process) as file:
            everything(Diary(process, file.write))

    found = list(read_histories([tmp_path / "a", tmp_path / "b"]))

    assert [one.process for one in found] == ["a"] * 11 + ["b"] * 11


@pytest.mark.parametrize("line", ["hello", '{"event": "dance"}', '{"event": "begin"}', "[]"])
def test_a_file_that_is_no_history_is_refused_by_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "w.jsonl"
    path.write_text(f'{{"event":"note","at_ns":1,"process":"w","text":"x"}}\n{line}\n')

    with pytest.raises(HistoryDamagedError, match=r"w\.jsonl, line 2, is no event"):
        list(read_histories([path]))

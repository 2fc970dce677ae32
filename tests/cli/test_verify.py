"""``waystation verify`` against a real broker, and over histories that tell of a bad one."""

import json
from pathlib import Path

import pytest
from tests.support.command import Ended, waystation

from waystation.cli.verify import _tidy_up
from waystation.model.ids import TopicPartition
from waystation.testing.checker import Kind
from waystation.testing.history import Diary, HistoryFile, Seen, Written, read_histories
from waystation.testing.workload import Workload

WHERE = TopicPartition("orders", 0)


def verify(bootstrap: str, *options: str) -> Ended:
    return waystation("verify", "--bootstrap", bootstrap, *options, timeout_s=60)


def topics(bootstrap: str) -> str:
    return waystation("topic", "list", "--bootstrap", bootstrap).out


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    """A history in which a reader goes past what was acknowledged."""
    with HistoryFile(tmp_path / "lossy.jsonl") as file:
        writer, reader = Diary("w", file.write), Diary("r", file.write)
        values = writer.sending(None, 30)
        writer.acknowledged(Written(*WHERE, one.number, one.number) for one in values)
        reader.polled(WHERE, 30, [Seen(0, "w", 0), Seen(29, "w", 29)])
    return file.path


@pytest.mark.parametrize("how", ["--plain", "--transactions"])
def test_a_good_cluster_passes_and_is_left_as_it_was(
    bootstrap: str, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "history.jsonl"
    ended = verify(bootstrap, how, "--seconds", "1.5", "--history", str(path), "--json")

    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert told["findings"] == []
    assert told["complete"]
    assert told["acknowledged"] == told["writes"] > 50
    assert told["reads"] > told["writes"], "only the last reader read"
    assert told["histories"] == [str(path)]
    in_transactions = how == "--transactions"
    assert [told[fate] > 0 for fate in ("committed", "aborted")] == [in_transactions] * 2
    assert told["unknown"] == 0
    assert "waystation-verify" not in topics(bootstrap)
    assert "waystation-verify" not in waystation("group", "list", "--bootstrap", bootstrap).out
    assert sum(1 for _ in read_histories([path])) > 50


def test_topics_stay_if_wanted(bootstrap: str, tmp_path: Path) -> None:
    options = ("--plain", "--seconds", "0.1", "--topics", "1", "--keep-topics")
    ended = verify(bootstrap, *options, "--history", str(tmp_path / "history.jsonl"))

    assert ended.code == 0, ended.err
    assert "ok    nothing lost" in ended.out
    assert "stay, its history is" in ended.err
    (left,) = (line for line in topics(bootstrap).splitlines() if "waystation-verify" in line)
    waystation("topic", "delete", left.split()[0], "--yes", "--bootstrap", bootstrap)


def test_a_history_is_judged_again(lossy: Path) -> None:
    ended = waystation("verify", "--check", str(lossy))

    assert ended.code == 1
    lines = ended.out.splitlines()
    assert lines[0].startswith("30 messages sent, 30 acknowledged, 2 readings")
    assert lines[1] == ("BAD   lost write: w:1 was acknowledged; r read on past orders-0@1")
    assert lines[-2:] == ["BAD   and 8 more", "      lost write: 28"]
    assert "nobody read to the end" in ended.err


def test_findings_in_json(lossy: Path) -> None:
    ended = waystation("verify", "--check", str(lossy), "--json")

    assert ended.code == 1
    told = json.loads(ended.out)
    assert {one["kind"] for one in told["findings"]} == {Kind.LOST_WRITE}
    assert not told["complete"]


def test_mistakes_are_named(tmp_path: Path, lossy: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear cluster,\n")

    ended = waystation("verify", "--check", str(tmp_path / "letter.txt"))
    assert (ended.code, ended.out) == (1, "")
    assert "letter.txt, line 1, is no event of a history" in ended.err

    ended = waystation("verify", "--history", str(lossy))
    assert ended.code == 2
    assert "exists already" in ended.err


def test_topics_that_cannot_be_deleted_do_not_change_the_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = Workload(bootstrap="127.0.0.1:1", name="waystation-verify-1", seconds=1)
    _tidy_up(load)

    assert "topics waystation-verify-1-* could not all be deleted: " in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_no_good_one(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    ended = verify("127.0.0.1:1", "--plain", "--history", str(path))

    assert ended.code == 1
    assert "no broker answers" in ended.err
    assert not path.exists()

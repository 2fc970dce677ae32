"""``waystation group`` and ``consume --group`` against a real broker."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command import Ended, waystation

from waystation import Admin, Consumer, Producer
from waystation.cli.main import main

HOUR_MS = 3_600_000
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
async def filled(bootstrap: str, topic: str) -> str:
    """Two partitions of ten messages: one an hour old, one just written."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 2)
    async with Producer(bootstrap) as producer:
        for number in range(20):
            age_ms = HOUR_MS if number < 10 else 0
            producer.submit(
                topic, f"v{number}", partition=number % 2, timestamp=NOW_MS - age_ms + number
            )
    return topic


@pytest.fixture
async def group(bootstrap: str, filled: str) -> str:
    """A group that has read three of each partition."""
    async with Admin(bootstrap) as admin:
        await admin.alter_group_offsets(f"g-{filled}", {(filled, 0): 3, (filled, 1): 3})
    return f"g-{filled}"


@pytest.fixture
async def member(bootstrap: str, filled: str, group: str) -> AsyncIterator[Consumer]:
    async with Consumer(group, filled, bootstrap=bootstrap, client_id="till") as consumer:
        async with asyncio.timeout(10):
            while len(consumer.assignment) < 2:
                await asyncio.sleep(0.01)
        yield consumer


def run(bootstrap: str, *arguments: str, typed: bytes = b"") -> Ended:
    return waystation(*arguments, "--bootstrap", bootstrap, typed=typed)


async def run_beside(bootstrap: str, *arguments: str) -> Ended:
    """Run a command while this loop goes on with its heartbeats."""
    return await asyncio.to_thread(run, bootstrap, *arguments)


def lines(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def committed(bootstrap: str, group: str) -> list[int]:
    """By partition, asked in this process because that is faster."""

    async def ask() -> list[int]:
        async with Admin(bootstrap) as admin:
            return [at.offset for _, at in sorted((await admin.group_offsets(group)).items())]

    return asyncio.run(ask())


# --- list and describe ------------------------------------------------------------------------


async def test_groups_are_listed_with_their_state(
    bootstrap: str, group: str, member: Consumer
) -> None:
    listed = lines(await run_beside(bootstrap, "group", "list", "--json"))
    stable = lines(await run_beside(bootstrap, "group", "list", "--state", "Empty", "--json"))

    (own,) = [one for one in listed if one["group"] == group]
    assert (own["state"], own["kind"]) == ("Stable", "classic")
    assert group not in [one["group"] for one in stable]


async def test_a_description_shows_members_and_both_kinds_of_lag(
    bootstrap: str, filled: str, group: str, member: Consumer
) -> None:
    told = json.loads((await run_beside(bootstrap, "group", "describe", group, "--json")).out)
    shown = await run_beside(bootstrap, "group", "describe", group)

    (one,) = told["members"]
    assert one["client"] == "till"
    assert one["partitions"] == [[filled, 0], [filled, 1]]
    for partition in told["partitions"]:
        assert (partition["committed"], partition["end"], partition["lag"]) == (3, 10, 7)
        most_ms = HOUR_MS + time.time_ns() // 1_000_000 - NOW_MS
        assert HOUR_MS / 1_000 < partition["lag_seconds"] <= most_ms / 1_000
        assert partition["member"] == one["member"]
    assert told["total"]["lag"] == 14
    assert told["state"] == "Stable"
    assert "SECONDS" in shown.out
    assert "total lag: 14 messages" in shown.err


def test_a_group_that_has_read_all_is_not_late(bootstrap: str, filled: str, group: str) -> None:
    run(bootstrap, "group", "reset", group, "--to-latest")
    told = json.loads(run(bootstrap, "group", "describe", group, "--json").out)

    assert told["total"] == {"partitions": 2, "lag": 0, "lag_seconds": 0.0}
    assert told["members"] == []
    assert told["state"] == "Empty"


def test_a_group_that_is_not_there_is_one_line(bootstrap: str) -> None:
    ended = run(bootstrap, "group", "describe", "nobody")

    assert ended.code == 1
    assert ended.err == (
        "waystation: group nobody does not exist: `waystation group list` shows those that do\n"
    )


# --- reset ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "after"),
    [
        ("--to-earliest", 0),
        ("--to-latest", 10),
        ("--to-current", 3),
        ("--to-offset 6", 6),
        ("--to-offset 600", 10),
        ("--to-time HALF_AN_HOUR_AGO", 5),
        ("--by-duration PT30M", 5),
        ("--by-duration 2h", 0),
        ("--shift-by 2", 5),
        ("--shift-by -200", 0),
    ],
)
def test_a_dry_run_shows_where_the_group_would_go(
    bootstrap: str, group: str, place: str, after: int, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """In this process: ten interpreters more would show nothing more."""
    at = ["--dry-run", "--json", "--bootstrap", bootstrap]
    place = place.replace("HALF_AN_HOUR_AGO", str(NOW_MS - HOUR_MS // 2))
    with pytest.raises(SystemExit) as ended:
        main(["group", "reset", group, *place.split(), *at])

    assert ended.value.code == 0
    plan = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [(one["before"], one["after"]) for one in plan] == [(3, after), (3, after)]


def test_a_reset_moves_the_group_and_a_dry_run_does_not(bootstrap: str, group: str) -> None:
    assert run(bootstrap, "group", "reset", group, "--shift-by", "-2", "--dry-run").code == 0
    assert committed(bootstrap, group) == [3, 3]

    moved = run(bootstrap, "group", "reset", group, "--shift-by", "-2")
    assert moved.code == 0
    assert "AFTER" in moved.out
    assert committed(bootstrap, group) == [1, 1]


def test_only_chosen_topics_and_partitions_are_reset(
    bootstrap: str, filled: str, group: str
) -> None:
    run(bootstrap, "group", "reset", group, "--to-latest", "--topic", f"{filled}:1")
    assert committed(bootstrap, group) == [3, 10]

    run(bootstrap, "group", "reset", group, "--to-earliest", "--topic", filled)
    assert committed(bootstrap, group) == [0, 0]


def test_offsets_go_into_a_file_and_back(
    bootstrap: str, filled: str, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    run(bootstrap, "group", "reset", group, "--to-current", "--dry-run", "--export", str(file))
    assert file.read_text() == f"{filled},0,3\n{filled},1,3\n"

    run(bootstrap, "group", "reset", group, "--to-latest")
    assert run(bootstrap, "group", "reset", group, "--from-file", str(file)).code == 0
    assert committed(bootstrap, group) == [3, 3]

    file.write_text(f"{group},{filled},0,5\nothers,{filled},1,9\n")
    run(bootstrap, "group", "reset", group, "--from-file", str(file))
    assert committed(bootstrap, group) == [5, 3]

    file.write_text("orders;0;3\n")
    wrong = run(bootstrap, "group", "reset", group, "--from-file", str(file))
    assert wrong.code == 1
    assert "line 1" in wrong.err


async def test_a_group_with_members_is_refused_and_told_who_they_are(
    bootstrap: str, group: str, member: Consumer
) -> None:
    ended = await run_beside(bootstrap, "group", "reset", group, "--to-earliest", "--yes")
    deleted = await run_beside(bootstrap, "group", "delete", group, "--yes")
    planned = await run_beside(bootstrap, "group", "reset", group, "--to-earliest", "--dry-run")

    assert ended.code == 1
    assert ended.err.startswith(f"waystation: group {group} has 1 member (till at ")
    assert "stop them" in ended.err
    assert deleted.code == 1
    assert "still has members" in deleted.err
    assert planned.code == 0


def test_a_group_that_never_was_can_be_placed(bootstrap: str, filled: str) -> None:
    nothing = run(bootstrap, "group", "reset", "new-group", "--to-earliest")
    placed = run(bootstrap, "group", "reset", "new-group", "--to-offset", "4", "--topic", filled)

    assert nothing.code == 1
    assert "name partitions" in nothing.err
    assert placed.code == 0
    assert committed(bootstrap, "new-group") == [4, 4]


def test_a_reset_that_makes_no_sense_is_a_usage_error(bootstrap: str) -> None:
    for arguments in (
        [],
        ["--to-earliest", "--to-latest"],
        ["--by-duration", "soon"],
        ["--by-duration", "P1M"],
        ["--to-time", "noon"],
        ["--to-earliest", "--topic", "orders:x"],
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["group", "reset", "billing", *arguments, "--bootstrap", bootstrap])


# --- delete -----------------------------------------------------------------------------------


def test_groups_and_single_offsets_are_deleted(bootstrap: str, filled: str, group: str) -> None:
    other = run(bootstrap, "group", "delete", group, "--topic", "no-such-topic", "--json")
    assert other.code == 0
    assert committed(bootstrap, group) == [3, 3]

    assert run(bootstrap, "group", "delete", group, "--yes").code == 0
    assert group not in [one["group"] for one in lines(run(bootstrap, "group", "list", "--json"))]


# --- consume ----------------------------------------------------------------------------------


def test_consuming_in_a_group_goes_on_where_it_stopped(bootstrap: str, filled: str) -> None:
    consume = ("consume", filled, "--group", f"c-{filled}", "--from-beginning")
    first = run(bootstrap, *consume, "--count", "15")
    rest = run(bootstrap, *consume, "--timeout-ms", "300")

    assert first.code == rest.code == 0
    assert len(first.out.splitlines()) == 15
    assert len(rest.out.splitlines()) == 5
    assert len({*first.out.splitlines(), *rest.out.splitlines()}) == 20


def test_a_new_group_waits_for_new_messages(bootstrap: str, filled: str) -> None:
    ended = run(bootstrap, "consume", filled, "--group", f"n-{filled}", "--timeout-ms", "300")

    assert (ended.code, ended.out) == (0, "")
    assert committed(bootstrap, f"n-{filled}") == [10, 10]


def test_a_group_knows_where_it_is(bootstrap: str) -> None:
    for extra in (["--offset", "3"], ["--partition", "0"], ["--timestamp", "1"]):
        with pytest.raises(SystemExit, match="2"):
            main(["consume", "orders", "--group", "g", *extra, "--bootstrap", bootstrap])


def test_completion_knows_the_groups_commands() -> None:
    from tests.support.command import COMMAND

    done = subprocess.run(
        COMMAND,
        env={
            "_WAYSTATION_COMPLETE": "bash_complete",
            "COMP_WORDS": "waystation group de",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert "plain,describe" in done.stdout
    assert "plain,delete" in done.stdout

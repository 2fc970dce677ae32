"""``waystation queue`` against a real broker."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.command import waystation

from waystation.cli.main import main


class Run:
    """Runs ``waystation queue`` in this process: an interpreter each would show nothing more."""

    def __init__(self, bootstrap: str, output: pytest.CaptureFixture[bytes]) -> None:
        self.bootstrap, self._output = bootstrap, output

    def __call__(self, *arguments: object, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["queue", *map(str, arguments), "--bootstrap", self.bootstrap])
        captured = self._output.readouterr()
        out, err = captured.out.decode(), captured.err.decode()
        assert ended.value.code == code, out + err
        return out, err

    def lines(self, *arguments: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json")[0].splitlines()]

    def send(self, name: str, *values: str, key: str = "same") -> None:
        """In order, for they have one key."""
        for value in values:
            self("send", name, "--value", value, "--key", key)


@pytest.fixture
def run(bootstrap: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    return Run(bootstrap, capsysbinary)


@pytest.fixture
def jobs(run: Run, topic: str) -> str:
    """A queue of one partition."""
    run("create", topic, "--partitions", 1)
    return topic


# --- the whole way ------------------------------------------------------------------------------


def test_lines_in_messages_out(bootstrap: str, run: Run, jobs: str) -> None:
    """As a shell runs it, once."""
    at = ("--bootstrap", bootstrap)
    sent = waystation("queue", "send", jobs, "--key-separator", ":", *at, typed=b"a:1\nb:2\n")
    came = waystation("queue", "receive", jobs, "--count", "5", *at)

    assert (sent.code, sent.err) == (0, f"sent 2 messages to {jobs}\n")
    assert (came.code, came.out) == (0, "1\n2\n")
    assert "nothing came within 50ms" in run("receive", jobs, "--wait", "50ms")[1]


def test_whoever_sends_to_what_was_never_made_a_queue_is_told(
    bootstrap: str, run: Run, topic: str
) -> None:
    assert waystation("topic", "create", topic, "--bootstrap", bootstrap).code == 0
    unmade = run("send", topic, "--value", "x")[1]
    run("create", topic)
    made = run("send", topic, "--value", "y")[1]

    assert f"hint: nobody has received from {topic} yet" in unmade
    assert f"waystation queue create {topic}" in unmade
    assert "hint" not in made


def test_what_is_printed_is_acknowledged_unless_told(run: Run, jobs: str) -> None:
    run.send(jobs, "1", "2")
    (first,) = run.lines("receive", jobs, "--no-ack")
    (again,) = run.lines("receive", jobs)
    (second,) = run.lines("receive", jobs)

    assert (first["value"], first["deliveries"], first["key"]) == ("1", 1, "same")
    assert (again["value"], again["deliveries"]) == ("1", 2)
    assert second["value"] == "2"
    assert run.lines("receive", jobs, "--wait", "50ms") == []


def test_a_receipt_is_settled_by_another_command(run: Run, jobs: str) -> None:
    run.send(jobs, "1", "2", "3")
    held = run.lines("receive", jobs, "--hold", "--count", 3)
    assert [one["value"] for one in held] == ["1", "2", "3"]
    one, two, three = (one["receipt"] for one in held)

    assert "acknowledged 0-0" in run("ack", jobs, one)[1]
    (extended,) = run.lines("extend", jobs, two, "--lock", "1m")
    assert extended["receipt"] == two
    run("nack", jobs, two)
    run("nack", jobs, three, "--reject")

    assert "settled already" in run("ack", jobs, one, code=1)[1]
    (again,) = run.lines("receive", jobs)
    assert (again["value"], again["deliveries"]) == ("2", 2)
    assert run.lines("receive", jobs, "--wait", "50ms") == []


def test_stats_and_list_and_delete(run: Run, jobs: str) -> None:
    run.send(jobs, "1", "2", "3")
    (before,) = run.lines("stats", jobs)
    said_before = run("stats", jobs)[1]
    run("receive", jobs)
    held = run.lines("receive", jobs, "--hold")
    (told,) = run.lines("stats", jobs)

    assert (before["state"], before["partitions"][0]["start"]) == ("Dead", None)
    assert (before["unsettled"], before["ready"], before["in_flight"]) == (3, 3, 0)
    assert "nobody has received anything yet" in said_before
    assert (told["unsettled"], told["ready"], told["in_flight"]) == (2, 1, 1)
    assert told["partitions"][0]["start"] == 1
    shown, said = run("stats", jobs)
    assert "IN FLIGHT" in shown
    assert "2 messages unsettled" in said
    run("nack", jobs, held[0]["receipt"])
    (listed,) = [one for one in run.lines("list") if one["group"] == jobs]
    assert listed["topics"] == [jobs]

    run("delete", jobs, "--yes")

    assert jobs not in [one["group"] for one in run.lines("list")]
    assert run("receive", jobs, "--count", 3)[0] == "1\n2\n3\n"


def test_a_policy_is_set_with_the_queue_and_changed_later(run: Run, topic: str) -> None:
    dead = f"{topic}.dead"
    (made,) = run.lines("create", topic, "--max-deliveries", 1, "--dead-letters", dead)
    run.send(topic, "poison")
    run("receive", topic, "--no-ack")

    assert made == {"queue": topic, "group": topic, "topic_created": True}
    assert run.lines("receive", topic, "--wait", "100ms") == []
    (told,) = run.lines("stats", topic)
    assert told["dead_letter_topic"] == dead
    assert "its topic was there already" in run("create", topic, "--lock", "5s")[1]


def test_keys_are_kept_in_order(run: Run, topic: str) -> None:
    run("create", topic, "--partitions", 1, "--order-by-key")
    run.send(topic, "a1", "a2", key="a")
    run.send(topic, "b1", key="b")

    held = run.lines("receive", topic, "--hold", "--count", 3)

    assert [one["value"] for one in held] == ["a1", "b1"]
    run("ack", topic, held[0]["receipt"])
    assert [one["value"] for one in run.lines("receive", topic)] == ["a2"]


def test_the_urgent_goes_first(run: Run, topic: str) -> None:
    run("create", topic, "--partitions", 1, "--priority")
    run("send", topic, "--value", "calm")
    run("send", topic, "--value", "urgent", "--priority", 9)

    assert run("receive", topic)[0] == "urgent\n"
    assert run("receive", topic)[0] == "calm\n"


def test_the_two_minutes_of_the_page_work_as_written(bootstrap: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "queues.md").read_text()
    first, receipts, *_ = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    where = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    ended = subprocess.run(
        ["sh", "-e"],
        input=first,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": where, "WAYSTATION_BOOTSTRAP": bootstrap},
    )

    assert ended.returncode == 0, ended.stderr
    assert "two coffees\n" in ended.stdout
    assert "--hold" in receipts


# --- wrong input --------------------------------------------------------------------------------


def test_what_does_not_exist_comes_with_its_remedy(run: Run, topic: str) -> None:
    for command in (["receive", topic], ["send", topic, "--value", "x"], ["stats", topic]):
        assert f"waystation queue create {topic}" in run(*command, code=1)[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["send", "q", "--value", "x", "--priority", "12"], "0, the lowest, to 9"),
        (["ack", "q", "nonsense"], "no receipt"),
        (["create", "q/q"], "may not be called that"),
        (["create", "fine", "--config", "share.ordr=key"], "share.order"),
    ],
)
def test_mistakes_are_named(run: Run, arguments: list[str], says: str) -> None:
    assert says in run(*arguments, code=1)[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["receive", "q", "--hold", "--no-ack"],
        ["receive", "q", "--wait", "soon"],
        ["receive", "q", "--count", "0"],
        ["send", "q", "--after", "1h", "--at", "2030-01-01T00:00:00Z"],
        ["send", "q", "--value", "x", "--after", "soon"],
        ["create", "q", "--config", "nonsense"],
        ["ack", "q"],
    ],
)
def test_command_lines_that_make_no_sense_end_with_2(run: Run, arguments: list[str]) -> None:
    run(*arguments, code=2)


@pytest.mark.parametrize("command", ["create", "send", "receive", "ack", "nack", "extend", "stats"])
def test_every_command_shows_an_example(run: Run, command: str) -> None:
    assert f"waystation queue {command}" in run(command, "--help")[0]

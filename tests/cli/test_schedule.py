"""``waystation schedule`` against a real broker."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import pytest
from tests.support.command import waystation

from waystation.cli.main import main
from waystation.cli.schedule_options import due_in, moment, shown_time

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"
IMPORTS = """
import asyncio
from datetime import datetime
from zoneinfo import ZoneInfo
from waystation import Admin, Producer
"""


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def lines(self) -> list[dict[str, Any]]:
        """What it printed with ``--json``."""
        return [json.loads(line) for line in self.out.splitlines()]


class Run:
    """Runs commands in this process: an interpreter each would show nothing more."""

    def __init__(self, bootstrap: str, output: pytest.CaptureFixture[bytes]) -> None:
        self._bootstrap, self._output = bootstrap, output

    def __call__(self, *arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--bootstrap", self._bootstrap])
        captured = self._output.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, captured.out.decode(), captured.err.decode())

    def fine(self, *arguments: object) -> str:
        ended = self(*arguments)
        assert ended.code == 0, ended.err
        return ended.out.strip()


@pytest.fixture
def run(bootstrap: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    return Run(bootstrap, capsysbinary)


@pytest.fixture
def orders(run: Run, topic: str) -> str:
    run.fine("topic", "create", topic, "--partitions", 2, "--config", "schedule.enable=true")
    return topic


def test_a_message_is_sent_shown_moved_cancelled(run: Run, orders: str) -> None:
    name = run.fine(
        "schedule", "at", orders, "2031-05-01T09:00:00+02:00", "--value", "v", "--key", "k",
        "--header", "kind=open",
    )  # fmt: skip
    (shown,) = run("schedule", "show", orders, name, "--json").lines()

    assert (shown["id"], shown["value"], shown["key"]) == (name, "v", "k")
    assert shown["due_ms"] == 1_935_385_200_000
    assert {"name": "kind", "value": "open"} in shown["headers"]
    assert "v" in run.fine("schedule", "show", orders, name)

    run.fine("schedule", "retime", orders, name, "1d")
    (listed,) = run("schedule", "list", orders, "--json").lines()
    assert listed["id"] == name
    assert 86_300_000 < listed["due_ms"] - time.time() * 1_000 < 86_401_000

    assert "cancelled" in run("schedule", "cancel", orders, name, "--yes").err
    again = run("schedule", "cancel", orders, name, "--yes")
    assert (again.code, "is not pending" in again.err) == (1, True)
    told = run("schedule", "cancel", orders, name, "--json")
    assert (told.code, told.lines()[0]["done"]) == (1, False)
    assert run("schedule", "list", orders, "--json").out == ""


def test_each_line_waits_and_then_comes(bootstrap: str, orders: str) -> None:
    sent = waystation(
        "schedule", "after", orders, "1s", "--key", "k", "--bootstrap", bootstrap,
        typed=b"one\ntwo\nthree\n",
    )  # fmt: skip
    assert sent.code == 0, sent.err
    assert len(sent.out.split()) == 3
    read = waystation(
        "consume", orders, "--from-beginning", "--follow", "--count", "3", "--bootstrap", bootstrap
    )

    assert read.out.split() == ["one", "two", "three"]


def test_a_list_is_cut_and_goes_on(run: Run, orders: str) -> None:
    for number in range(5):
        key = f"k{number % 2}"
        run.fine("schedule", "at", orders, f"{number + 1}h", "--value", number, "--key", key)
    whole = run("schedule", "list", orders, "--json").lines()
    first = run("schedule", "list", orders, "--limit", 2)
    place = first.err.split("--after ")[1].strip()
    rest = run("schedule", "list", orders, "--after", place, "--json").lines()

    assert len(whole) == 5
    assert [one["id"] for one in rest] == [one["id"] for one in whole[2:]]
    assert "5 messages waiting" in first.err
    until = run("schedule", "list", orders, "--until", "150m", "--json").lines()
    assert until == whole[:2]

    ended = run("schedule", "cancel", orders, "--key", "k0", "--yes")
    assert ended.code == 0
    assert ended.err.count("cancelled") == 3
    assert [one["key"] for one in run("schedule", "list", orders, "--json").lines()] == ["k1", "k1"]


def test_what_recurs_says_so(run: Run, orders: str) -> None:
    name = run.fine(
        "schedule", "cron", orders, "0 7 * * mon-fri", "--zone", "Europe/Berlin", "--value", "v"
    )
    assert "0 7 * * mon-fri (Europe/Berlin)" in run.fine("schedule", "list", orders)
    (told,) = run("schedule", "show", orders, name, "--json").lines()
    assert (told["cron"], told["zone"]) == ("0 7 * * mon-fri", "Europe/Berlin")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("at", "TOPIC", "yesterday", "--value", "v"), "'yesterday' is no time"),
        (("at", "TOPIC", "1800000000", "--value", "v"), "seconds"),
        (("at", "TOPIC", "1800000000000000", "--value", "v"), "microseconds"),
        (("after", "TOPIC", "soon", "--value", "v"), "deliver-after is 'soon'"),
        (("cron", "TOPIC", "0 25 * * *", "--value", "v"), "hour"),
        (("cron", "TOPIC", "@daily", "--zone", "Mars", "--value", "v"), "Mars"),
        (("show", "TOPIC", "0-99"), "no such message"),
        (("show", "TOPIC", "seven"), "3-1742"),
        (("cancel", "TOPIC", "--yes"), "ids"),
        (("cancel", "TOPIC", "9-0", "--yes"), "no partition 9"),
        (("list", "TOPIC", "--after", "here"), "what the list printed"),
    ],
)
def test_mistakes_name_the_culprit(
    run: Run, orders: str, words: tuple[str, ...], said: str
) -> None:
    ended = run("schedule", *(orders if word == "TOPIC" else word for word in words))

    assert ended.code in (1, 2)
    assert said in ended.err
    assert run("schedule", "list", orders, "--json").out == ""


def test_a_topic_that_keeps_nothing_is_told_with_the_remedy(run: Run, topic: str) -> None:
    run.fine("topic", "create", topic)
    for words in (("after", topic, "1s", "--value", "v"), ("list", topic)):
        ended = run("schedule", *words)

        assert ended.code == 1
        assert f"topic alter {topic} --set schedule.enable=true" in ended.err


def test_the_minute_of_the_page_works_as_written(bootstrap: str, topic: str) -> None:
    page = PAGE.read_text().replace(" orders", f" {topic}").replace('"orders"', f'"{topic}"')
    (commands,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    whole = f"{IMPORTS}\nasync def main():\n{indent(program, '    ')}\nasyncio.run(main())\n"
    whole = whole.replace("Producer()", f"Producer({bootstrap!r})")
    whole = whole.replace("Admin()", f"Admin({bootstrap!r})")

    said = typed(["sh", "-e"], commands, bootstrap)
    assert said.startswith("0-0\n")
    assert "0 7 * * mon-fri (Europe/Berlin)" in said
    assert "b'cart-7'" in typed([sys.executable, "-"], whole, bootstrap)


def typed(command: list[str], text: str, bootstrap: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        command,
        input=text,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": path, "WAYSTATION_BOOTSTRAP": bootstrap},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_times_are_read_and_shown_as_people_have_them() -> None:
    now = time.time() * 1_000

    assert moment("1800000000000") == 1_800_000_000_000
    assert moment("2027-01-15T08:00:00Z") == 1_800_000_000_000
    assert abs(moment("10m") - now - 600_000) < 5_000
    assert abs(moment("+1d12h") - now - 129_600_000) < 5_000
    assert moment(shown_time(1_800_000_000_123)) == 1_800_000_000_123
    assert due_in(int(now) - 5) == "now"
    assert due_in(int(now) + 90_200) == "1m30s"
    assert due_in(int(now) + 3 * 86_400_000 + 200) == "3d"
    assert due_in(int(now) + 90_000_000 + 200) == "1d1h"

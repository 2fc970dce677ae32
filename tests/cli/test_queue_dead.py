"""``waystation queue dead`` against a real broker."""

import asyncio
import json
from typing import Any

import pytest
from tests.broker.dying import consuming, dead_letters, fill, until

from waystation import Admin
from waystation.cli.main import main


class Run:
    """Runs commands in this process."""

    def __init__(self, bootstrap: str, output: pytest.CaptureFixture[bytes]) -> None:
        self.bootstrap, self._output = bootstrap, output

    def __call__(self, *arguments: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--bootstrap", self.bootstrap])
        captured = self._output.readouterr()
        said = captured.out.decode() + captured.err.decode()
        assert ended.value.code == code, said
        return captured.out.decode() if code == 0 else said

    def lines(self, *arguments: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]


@pytest.fixture
def run(bootstrap: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    return Run(bootstrap, capsysbinary)


@pytest.fixture
def orders(run: Run, topic: str) -> str:
    """A queue of which a consumer has rejected four messages."""
    asyncio.run(_make_dead(run.bootstrap, topic))
    return topic


async def _make_dead(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_queue(topic, 1, dead_letter_topic=f"{topic}.dead")
    await fill(bootstrap, topic, *((f"k{n % 2}", f"v{n}") for n in range(4)))
    async with consuming(bootstrap, topic, lambda _: "reject"):

        async def are_dead() -> bool:
            return len(await dead_letters(bootstrap, f"{topic}.dead")) == 4

        await until(are_dead)


def test_dead_letters_are_listed_shown_and_sent_back_once(run: Run, orders: str) -> None:
    listed = run.lines("queue", "dead", "list", orders)
    assert [(one["id"], one["source_offset"]) for one in listed] == [
        (f"0-{n}", n) for n in range(4)
    ]
    assert {(one["reason"], one["deliveries"], one["group"]) for one in listed} == {
        ("rejected", 1, orders)
    }
    assert "rejected" in run("queue", "dead", "list", orders, "--where", "key = 'k1'", "--limit", 1)

    (shown,) = run.lines("queue", "dead", "show", orders, "0-2")
    assert (shown["value"], shown["key"]) == ("v2", "k0")
    assert {"name": "of", "value": "v2"} in shown["headers"]
    assert run("queue", "dead", "show", orders, "0-2").strip() == "v2"

    (some,) = run.lines("queue", "dead", "redrive", orders, "--where", "key = 'k1'", "--yes")
    assert (some["state"], some["moved"]) == ("done", 2)
    assert [one["key"] for one in run.lines("queue", "dead", "list", orders)] == ["k0", "k0"]
    run("queue", "dead", "redrive", orders, "--yes", "--id", "rest")
    (again,) = run.lines("queue", "dead", "redrive", orders, "--yes", "--id", "rest")
    assert again["moved"] == 2
    assert run.lines("queue", "dead", "list", orders) == []
    assert all(one["redriven"] for one in run.lines("queue", "dead", "list", orders, "--all"))
    assert "rest" in run("queue", "dead", "status", orders)
    consumed = run("consume", orders, "--from-beginning").split()
    assert consumed == ["v0", "v1", "v2", "v3", "v1", "v3", "v0", "v2"]


def test_nothing_is_dead_before_the_first_message_dies(run: Run, topic: str) -> None:
    run("queue", "create", topic, "--dead-letters", f"{topic}.dead")

    assert run("queue", "dead", "list", topic) == ""
    assert run("queue", "dead", "redrive", topic, "--yes") == ""


def test_mistakes_are_told_with_their_remedy(run: Run, orders: str) -> None:
    assert "--dead-letters" in run("queue", "dead", "list", "nobody", code=2)
    assert "key =" in run("queue", "dead", "list", orders, "--where", "key =", code=2)
    assert "0-99" not in run("queue", "dead", "list", orders)
    assert "offset 99" in run("queue", "dead", "show", orders, "0-99", code=1)
    assert "3-1742" in run("queue", "dead", "show", orders, "x", code=1)
    assert "nowhere" in run("queue", "dead", "redrive", orders, "--to", "nowhere", "--yes", code=1)
    assert "status" in run("queue", "dead", "cancel", orders, "none", code=1)

"""``waystation sink`` against a real broker, with sinks that were left in every state."""

import asyncio
import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from waystation import Admin, Consumer, Producer
from waystation.cli.main import main
from waystation.spark.sink_cluster import open_sink
from waystation.spark.sink_state import Attempt, Task
from waystation.spark.sink_steps import Admitted, SinkSteps, TaskMessage


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def lines(self) -> list[dict[str, Any]]:
        """What it printed with ``--json``."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


class Sink:
    """Runs ``waystation sink`` in this process."""

    def __init__(self, bootstrap: str, output: pytest.CaptureFixture[bytes]) -> None:
        self._bootstrap, self._output = bootstrap, output

    def __call__(self, *arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(["sink", *arguments, "--bootstrap", self._bootstrap])
        captured = self._output.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, captured.out.decode(), captured.err.decode())


@pytest.fixture
def sink(bootstrap: str, capfdbinary: pytest.CaptureFixture[bytes]) -> Sink:
    return Sink(bootstrap, capfdbinary)


@pytest.fixture
def name(bootstrap: str, topic: str) -> str:
    """A sink and a topic of that name."""

    async def creating() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, 1)

    asyncio.run(creating())
    return topic


async def prepared(steps: SinkSteps, bootstrap: str, attempt: Attempt, task: Task) -> TaskMessage:
    admitted = await steps.admit(attempt, task)
    assert isinstance(admitted, Admitted)
    admitted = await steps.make_way(admitted)
    async with Producer(bootstrap, transactional_id=admitted.transactional_id) as producer:
        transaction = await producer.transaction().__aenter__()
        await transaction.send(attempt.sink, f"row {task.partition}")
        return await steps.written(admitted, await transaction.prepare(), 1)


def left(bootstrap: str, name: str, *, decide: bool, lose: bool = False) -> None:
    """Two tasks have prepared; the driver dies before the decision, or right after it."""

    async def leaving() -> None:
        attempt = Attempt(name, "q", "run-1", 0)
        async with open_sink(bootstrap) as steps:
            told = [await prepared(steps, bootstrap, attempt, Task(one)) for one in range(2)]
            if decide:
                steps._finish = dies  # type: ignore[method-assign,assignment]
                with pytest.raises(InterruptedError):
                    await steps.commit(told)
            if lose and told[1].prepared is not None:
                async with Admin(bootstrap) as admin:
                    await admin.abort_transaction(told[1].prepared[0], prepared=True)

    async def dies(*_: object) -> None:
        raise InterruptedError

    asyncio.run(leaving())


def shown(bootstrap: str, name: str) -> list[bytes | None]:
    async def reading() -> list[bytes | None]:
        consumer = Consumer(topics=name, bootstrap=bootstrap, isolation="read_committed")
        async with consumer:
            return [one.value for one in await consumer.poll(500)]

    return asyncio.run(reading())


def test_a_sink_is_listed_with_how_far_it_has_come(sink: Sink, bootstrap: str, name: str) -> None:
    left(bootstrap, name, decide=True)

    (told,) = [one for one in sink("list", "--json").lines() if one["sink"] == name]
    assert (told["query"], told["batch"], told["rows"]) == ("q", 0, 2)
    assert told["state"] == "unended"
    assert name in sink("list").out


def test_a_sink_is_shown_with_its_transactions(sink: Sink, bootstrap: str, name: str) -> None:
    left(bootstrap, name, decide=False)

    (told,) = sink("show", name, "--json").lines()
    assert [(one["task"], one["decided"], one["state"]) for one in told["transactions"]] == [
        ("0 (attempt 0)", "no", "prepared"),
        ("1 (attempt 0)", "no", "prepared"),
    ]
    ended = sink("show", name)
    assert ended.code == 0
    assert "no batch is decided yet" in ended.err
    assert "prepared" in ended.out


def test_what_is_decided_becomes_visible(sink: Sink, bootstrap: str, name: str) -> None:
    left(bootstrap, name, decide=True)

    (told,) = sink("resolve", name, "--json").lines()

    assert (len(told["committed"]), told["aborted"], told["missing"]) == (2, [], [])
    assert sorted(filter(None, shown(bootstrap, name))) == [b"row 0", b"row 1"]
    (told,) = sink("show", name, "--json").lines()
    assert told["state"] == "free"
    assert "was decided last, by run run-1" in sink("show", name).err


def test_what_is_not_decided_is_taken_back(sink: Sink, bootstrap: str, name: str) -> None:
    left(bootstrap, name, decide=False)

    ended = sink("resolve", name)

    assert ended.code == 0
    assert ended.err.count("aborted waystation.sink.") == 2
    assert f"sink {name} is free" in ended.err
    assert shown(bootstrap, name) == []
    assert sink("show", name, "--json").lines()[0]["transactions"] == []


def test_rows_that_are_gone_have_to_be_accepted(sink: Sink, bootstrap: str, name: str) -> None:
    left(bootstrap, name, decide=True, lose=True)

    refused = sink("resolve", name)
    assert refused.code == 1
    assert "task 1 (attempt 0)" in refused.err
    assert "--accept-missing" in refused.err

    accepted = sink("resolve", name, "--accept-missing")
    assert accepted.code == 0
    assert "missing: the rows of task 1 (attempt 0)" in accepted.err
    assert shown(bootstrap, name) == [b"row 0"]


def test_a_sink_can_be_forgotten(sink: Sink, bootstrap: str, name: str) -> None:
    left(bootstrap, name, decide=True)

    assert sink("resolve", name, "--forget").code == 0

    assert name not in sink("list").out
    ended = sink("show", name)
    assert ended.code == 1
    assert "nothing was ever written under that name" in ended.err
    assert sink("resolve", name).code == 1


def test_looking_after_sinks_needs_neither_spark_nor_arrow() -> None:
    script = (
        "import sys, waystation.spark.sink_cluster\n"
        "print([one for one in ('pyspark', 'pyarrow', 'pandas') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert done.stdout == "[]\n"

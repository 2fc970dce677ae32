"""Background tasks are held, and their crashes are told."""

import asyncio
import gc
import io
import json
import logging
from collections.abc import Iterator

import pytest

from waystation.runtime.tasks import Tasks, spawn
from waystation.telemetry import logs


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers, root.level
    out = io.StringIO()
    logs.configure("info", "json", out)
    yield out
    logs.configure("info", "auto", None)
    root.handlers, root.level = before


async def crash() -> None:
    raise RuntimeError("boom")


async def test_a_task_nobody_holds_still_ends() -> None:
    done = asyncio.Event()
    gate = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await asyncio.shield(gate)
        done.set()

    spawn(work(), "work")
    gc.collect()
    gate.set_result(None)

    await asyncio.wait_for(done.wait(), 5)


async def test_a_crash_is_an_event_and_stops_no_other(log: io.StringIO) -> None:
    tasks = Tasks()
    tasks.spawn(crash(), "bad")
    good = tasks.spawn(asyncio.sleep(0, "fine"), "good")

    assert await good == "fine"
    await asyncio.sleep(0)
    line = json.loads(log.getvalue())
    assert (line["event"], line["task"]) == ("task.crashed", "bad")
    assert "RuntimeError: boom" in line["exception"]


async def test_closing_cancels_what_runs_and_waits_for_it() -> None:
    tasks = Tasks()
    farewells = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            farewells.append("bye")

    for _ in range(3):
        tasks.spawn(work(), "work")
    await asyncio.sleep(0)
    await tasks.aclose()

    assert farewells == ["bye"] * 3
    assert len(tasks) == 0


async def test_a_task_may_close_its_own_group() -> None:
    tasks = Tasks()
    task = tasks.spawn(tasks.aclose(), "closer")

    await asyncio.wait_for(task, 5)

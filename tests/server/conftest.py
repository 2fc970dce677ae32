"""Every asynchronous test here runs on uvloop and on the standard loop."""

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest
import uvloop

from waystation.telemetry import logs

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories() -> dict[str, LoopFactory]:
    return {"uvloop": uvloop.new_event_loop, "stdlib": asyncio.new_event_loop}


class Log:
    """The events that were written during one test."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def named(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def log() -> Iterator[Log]:
    root = logging.getLogger()
    before = root.handlers, root.level
    captured = Log()
    logs.configure("info", "json", captured.stream)
    yield captured
    logs.configure("info", "auto", None)
    root.handlers, root.level = before

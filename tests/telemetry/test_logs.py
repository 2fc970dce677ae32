"""Events arrive as lines that machines parse, or that people read."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from waystation.telemetry import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers, root.level
    out = io.StringIO()
    logs.configure("info", "json", out)
    yield out
    logs.configure("info", "auto", None)
    root.handlers, root.level = before


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_its_facts(stream: io.StringIO) -> None:
    logs.get_logger("storage", partition="orders-0").info("segment.rolled", base=42)

    (line,) = lines(stream)

    assert line.pop("timestamp")
    assert line == {
        "level": "info",
        "area": "storage",
        "event": "segment.rolled",
        "partition": "orders-0",
        "base": 42,
    }


def test_events_below_the_level_are_not_written(stream: io.StringIO) -> None:
    events = logs.get_logger("server")
    events.debug("request.parsed")
    events.warning("connection.refused")

    assert [line["event"] for line in lines(stream)] == ["connection.refused"]


def test_an_exception_says_where_it_happened(stream: io.StringIO) -> None:
    try:
        {}["missing"]
    except KeyError:
        logs.get_logger("server").exception("request.failed")

    (line,) = lines(stream)

    assert "KeyError: 'missing'" in str(line["exception"])


def test_facts_of_any_type_become_text(stream: io.StringIO) -> None:
    logs.get_logger("server").info("thing.seen", what=object)

    assert lines(stream)[0]["what"] == "<class 'object'>"


def test_bound_facts_are_repeated(stream: io.StringIO) -> None:
    events = logs.get_logger("server").bind(peer="10.0.0.1:5")
    events.info("one")
    events.info("two")

    assert [line["peer"] for line in lines(stream)] == ["10.0.0.1:5"] * 2


def test_other_libraries_come_through_the_same_door(stream: io.StringIO) -> None:
    logging.getLogger("asyncio").warning("slow %s", "callback")

    (line,) = lines(stream)

    assert (line["area"], line["level"], line["message"]) == ("asyncio", "warning", "slow callback")


def test_people_get_a_readable_line(stream: io.StringIO) -> None:
    logs.configure("info", "console", stream)
    logs.get_logger("server").info("listener.started", port=9092)

    assert "listener.started" in stream.getvalue()
    assert "port=9092" in stream.getvalue()


def test_a_closed_log_harms_nobody(stream: io.StringIO) -> None:
    stream.close()
    logs.get_logger("server").error("still.alive")

    logs.configure("info", "json", io.StringIO())


def test_an_event_does_not_bring_rich_along_nor_keep_others_from_it() -> None:
    script = (
        "import sys\n"
        "from waystation.telemetry import logs\n"
        "logs.get_logger('server').info('listener.started')\n"
        "assert 'rich' not in sys.modules\n"
        "import rich.console\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    assert b"listener.started" in done.stderr

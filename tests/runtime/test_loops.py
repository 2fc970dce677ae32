"""The loop is uvloop where it can be and the standard one where it cannot."""

import asyncio
import sys

import pytest
import uvloop

from waystation.runtime import loops


async def kind() -> type[asyncio.AbstractEventLoop]:
    return type(asyncio.get_running_loop())


def test_uvloop_is_taken_where_it_is_installed() -> None:
    assert loops.run(kind()) is uvloop.Loop


def test_the_standard_loop_serves_where_uvloop_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert issubclass(loops.run(kind()), asyncio.SelectorEventLoop)

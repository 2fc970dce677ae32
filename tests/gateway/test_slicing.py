"""Large bodies decoded slice by slice are what they would be decoded at once."""

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.gateway import slicing
from waystation.gateway.payloads import NewMessage
from waystation.gateway.producing import Batch
from waystation.gateway.slicing import sliced

decode = msgspec.json.Decoder(Batch).decode
nested = st.recursive(
    st.none() | st.text('},{"[]\\ a', max_size=8) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("},{", max_size=2), inner),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "large" not in request.node.name:
        monkeypatch.setattr(slicing, "SLICE_BYTES", 16)


@settings(max_examples=100)
@given(st.lists(nested, min_size=1, max_size=30), st.sampled_from([None, 1]))
def test_slices_are_the_whole(values: list[Any], indent: int | None) -> None:
    body = json.dumps({"messages": [{"value": one} for one in values]}, indent=indent).encode()

    found = asyncio.run(sliced(body, decode))

    assert messages(found) == messages(decode(body))


@settings(max_examples=200)
@given(st.lists(nested, min_size=1, max_size=10), st.data())
def test_what_is_broken_is_as_broken_in_slices(values: list[Any], data: st.DataObject) -> None:
    body = bytearray(json.dumps({"messages": [{"value": one} for one in values]}).encode())
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.sampled_from(b'x"},[{\\'))

    assert outcome(lambda: asyncio.run(sliced(bytes(body), decode))) == outcome(
        lambda: decode(bytes(body))
    )


@pytest.mark.parametrize("wrong", [b'{"value": 1, "key": 2}', b'{"value": 1, "k": 2}', b"7", b"{,"])
def test_a_mistake_is_told_with_its_place(wrong: bytes) -> None:
    fine = [b'{"value": %d}' % number for number in range(100)]
    body = b'{"messages": [' + b", ".join([*fine[:70], wrong, *fine[70:]]) + b"]}"

    told = []
    for call in (lambda: decode(body), lambda: asyncio.run(sliced(body, decode))):
        with pytest.raises(msgspec.DecodeError) as caught:
            call()
        told.append(str(caught.value))

    assert told[0] == told[1]


async def test_a_large_body_leaves_turns_to_others() -> None:
    one = json.dumps({"key": "k", "value": "x" * 60}).encode()
    body = b'{"messages":[' + b",".join([one] * 100_000) + b"]}"
    gaps: list[float] = []

    async def watch() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            gaps.append(time.perf_counter() - last)
            last = time.perf_counter()

    watching = asyncio.ensure_future(watch())
    found = await sliced(body, decode)
    watching.cancel()

    assert len(found.messages) == 100_000
    assert len(gaps) > len(body) / slicing.SLICE_BYTES / 2


def messages(batch: Batch) -> list[tuple[bytes, NewMessage]]:
    return [(bytes(one.value), msgspec.structs.replace(one, value=b"")) for one in batch.messages]


def outcome(call: Any) -> Any:
    """The messages, or that there is a mistake: of several, either may be found first."""
    try:
        return messages(call())
    except msgspec.DecodeError:
        return "mistaken"

"""Columns out of located records; the same in both twins, and nothing outside the payload."""

from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters.naive import Message, messages
from tests.filters.twins import TWINS
from tests.support.soak import count
from waystation.records import codec
from waystation.records.codec import BATCH_FIELDS, PLACE_FIELDS


def located(batch: list[Message]) -> tuple[bytes, "array[int]"]:
    writer = codec.RecordWriter(bytearray(), 1 << 40)
    for one in batch:
        writer.append(one.key, one.value, one.headers, timestamp=one.timestamp)
    places = array("q", bytes(8 * PLACE_FIELDS * len(batch)))
    base = writer.base_timestamp
    codec.locate_records(writer.out, len(batch), 4, len(batch) - 1, base, places)
    return bytes(writer.out), places


def columns_of(
    twin: ModuleType, text: bytes, places: "array[int]", rows: list[int]
) -> list[object]:
    """Every column, or the errors instead of them."""

    def tried(name: str, *arguments: object) -> object:
        try:
            return getattr(twin, name)(*arguments)
        except IndexError:
            return IndexError

    copied = array("q", places)
    found = [tried(name, places, rows) for name in ("offsets", "times", "have_keys", "have_values")]
    found += [tried(name, text, places, rows) for name in ("keys", "values", "contents")]
    for name in (b"h", b"kind", b"x-y", b""):
        found += [tried(pick, text, places, rows, name) for pick in ("headers", "have_headers")]
    found += [tried("holding", text, places, rows, needle) for needle in (b"a", b'"DE"', b"1")]
    twin.date(copied, 0, len(rows), 7, -1)
    found.append(tried("bring_forward", copied, rows, 0))
    return [*found, copied.tolist()]


@settings(max_examples=count(50, 10_000), deadline=None)
@given(st.lists(messages, min_size=1, max_size=6), st.data())
def test_twins_pick_alike(batch: list[Message], data: st.DataObject) -> None:
    text, places = located(batch)
    rows = sorted(data.draw(st.sets(st.sampled_from(range(len(batch))))))
    first, *others = [columns_of(twin, text, array("q", places), rows) for twin in TWINS]

    assert IndexError not in first
    assert all(other == first for other in others)


@settings(max_examples=count(100, 20_000), deadline=None)
@given(st.lists(messages, min_size=1, max_size=4), st.data())
def test_places_that_lie_are_refused_or_harmless(batch: list[Message], data: st.DataObject) -> None:
    text, places = located(batch)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(places) - 1))
        places[at] = data.draw(st.sampled_from([-1, 0, 1, len(text), 1 << 40, -(1 << 40)]))
    cut = text[: data.draw(st.integers(0, len(text)))]
    rows = list(range(len(batch)))
    first, *others = [columns_of(twin, cut, array("q", places), rows) for twin in TWINS]

    assert all(other == first for other in others)


@pytest.mark.parametrize("rows", [[-1], [1], [1 << 40]])
def test_rows_that_are_not_there_are_refused(picking: ModuleType, rows: list[int]) -> None:
    text, places = located([Message(b"a", b"b")])

    with pytest.raises(IndexError):
        picking.keys(text, places, rows)
    with pytest.raises(IndexError):
        picking.offsets(places, rows)


def test_batches_that_are_not_there_are_refused(picking: ModuleType) -> None:
    text, places = located([Message(b"a", b"b")])
    batches = array("q", bytes(8 * BATCH_FIELDS))

    with pytest.raises(IndexError):
        picking.date_batches(text, places, batches, 2)
    with pytest.raises(IndexError):
        picking.date_batches(text, places, batches, 1)
    with pytest.raises(IndexError):
        picking.date(places, 0, 2, 0, 0)


def test_records_are_not_moved_back(picking: ModuleType) -> None:
    _, places = located([Message(b"a", b"b"), Message(b"c", b"d")])

    with pytest.raises(IndexError):
        picking.bring_forward(places, [0], 1)

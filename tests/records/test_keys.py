"""The map of keys: which hash, how full, what stays; the same in both twins."""

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.twins import KEYS_TWINS, NAMES, PURE, is_compiled
from waystation.records import codec
from waystation.records import keys as preferred

SECRET = bytes(range(16))
FIELDS = codec.PLACE_FIELDS
NO_LIMIT = 1 << 40

Row = tuple[bytes | None, bytes | None]
rows = st.lists(
    st.tuples(
        st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 9, b"d" * 300]),
        st.none() | st.binary(max_size=5),
    ),
    min_size=1,
    max_size=40,
)


@pytest.fixture(params=KEYS_TWINS, ids=NAMES)
def keys(request: pytest.FixtureRequest) -> ModuleType:
    twin: ModuleType = request.param
    return twin


def located(messages: list[Row]) -> tuple[bytes, "array[int]"]:
    writer = codec.RecordWriter(bytearray(), NO_LIMIT)
    for number, (key, value) in enumerate(messages):
        writer.append(key, value, timestamp=1_000 + number)
    places = array("q", [0]) * (FIELDS * len(messages))
    codec.locate_records(writer.out, len(messages), 10, len(messages) - 1, 1_000, places)
    return bytes(writer.out), places


def test_the_map_is_compiled_where_the_codec_is() -> None:
    assert is_compiled(preferred) is codec.COMPILED


# From the reference implementation's vectors for 128 bits of output.
@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_keys_are_hashed_as_siphash_is_published(
    keys: ModuleType, length: int, expected: str
) -> None:
    assert keys.key_hash(SECRET, bytes(range(length))).hex() == expected


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=100))
def test_twins_hash_alike(secret: bytes, key: bytes) -> None:
    assert len({twin.key_hash(secret, key) for twin in KEYS_TWINS}) == 1


def test_another_secret_is_another_hash(keys: ModuleType) -> None:
    assert keys.key_hash(SECRET, b"key") != keys.key_hash(bytes(16), b"key")


@given(rows, st.integers(0, 60), st.integers(0, 60), st.booleans(), st.integers(4, 80))
def test_what_stays_is_the_last_record_of_each_key(
    messages: list[Row], since: int, upto: int, drop_tombstones: bool, slots: int
) -> None:
    for twin in KEYS_TWINS:
        payload, places = located(messages)
        noted = twin.KeyMap(slots, SECRET)
        looked_at = noted.note(payload, places, len(messages), since)
        last: dict[bytes, int] = {}
        for number, (key, _) in enumerate(messages[:looked_at]):
            if key is not None and 10 + number >= since:
                last[key] = 10 + number
        assert noted.count == len(last) <= noted.limit
        if looked_at < len(messages):
            key = messages[looked_at][0]
            assert noted.count == noted.limit
            assert key not in last
        kept, tombstones, newest = noted.sift(payload, places, len(messages), upto, drop_tombstones)

        expected = [
            number
            for number, (key, value) in enumerate(messages)
            if 10 + number >= upto
            or (
                key is not None
                and 10 + number >= last.get(key, 0)
                and not (drop_tombstones and value is None)
            )
        ]
        assert [places[FIELDS * n + 4] - 10 for n in range(kept)] == expected
        assert tombstones == sum(messages[number][1] is None for number in expected)
        assert newest == (expected[-1] if expected else 0)


def test_a_full_map_says_so_at_the_record(keys: ModuleType) -> None:
    messages: list[Row] = [(b"%d" % number, b"") for number in range(10)]
    payload, places = located(messages)
    noted = keys.KeyMap(8, SECRET)

    assert noted.limit == 6
    assert noted.note(payload, places, 10, 0) == 6
    assert noted.note(payload, places, 6, 0) == 6


def test_many_keys_are_told_apart(keys: ModuleType) -> None:
    count = 3_000
    messages: list[Row] = [(b"key-%d" % number, b"") for number in range(count)]
    payload, places = located(messages)
    noted = keys.KeyMap(count * 4 // 3 + 8, SECRET)

    assert noted.note(payload, places, count, 0) == count
    assert noted.count == count
    assert noted.sift(payload, places, count, 10 + count, False)[0] == count


@pytest.mark.parametrize("field", [6, 7])
def test_places_of_another_payload_are_refused(keys: ModuleType, field: int) -> None:
    payload, places = located([(b"key", b"value")])
    places[field] = 1_000
    noted = keys.KeyMap(8, SECRET)

    with pytest.raises(IndexError):
        noted.note(payload, places, 1, 0)
    with pytest.raises(IndexError):
        noted.sift(payload, places, 1, 9, False)
    with pytest.raises(IndexError):
        noted.note(payload, places, 2, 0)
    for row in ([0, 80, 11, 0, 1, -1, 0], [0, 80, 11, 0, 2, -1, 0], [0, 80, 11, 5, 1, -1, 0]):
        with pytest.raises(IndexError):
            noted.judge(payload, places, array("q", row), 1, 99, -1, {})
    with pytest.raises(IndexError):
        noted.judge(payload, places, array("q", [0] * 7), 2, 99, -1, {})


# --- entries of an index --------------------------------------------------------------------


HALVES = (int.from_bytes(SECRET[:8], "little"), int.from_bytes(SECRET[8:], "little"))


def hashed(key: bytes) -> int:
    return preferred.brief_hash(HALVES, key) & 0xFFFFFFFF


# SipHash-1-3 of the bytes 0, 1, 2, ... under the key 0, 1, ... 15, as others have it.
@pytest.mark.parametrize(("length", "expected"), [(0, 0xABAC0158050FC4DC), (1, 0xC9F49BF37D57CA93)])
def test_entries_are_hashed_as_siphash_is_published(
    keys: ModuleType, length: int, expected: int
) -> None:
    assert keys.brief_hash(HALVES, bytes(range(length))) == expected


@given(messages=rows)
def test_every_key_of_a_batch_has_an_entry(messages: list[Row]) -> None:
    payload, places = located(messages)
    expected = [hashed(key) << 32 | 77 for key, _ in messages if key is not None]
    for keys in KEYS_TWINS:
        entries = array("Q", [0]) * (len(messages) + 1)
        end = keys.note_records(payload, places, len(messages), 77, HALVES, entries, 1)

        assert list(entries[1:end]) == expected
        with pytest.raises(IndexError):
            keys.note_records(payload, places, len(messages), 77, HALVES, entries, 2)


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=60), st.integers(0, 5))
def test_entries_are_sorted_and_counted_alike(numbers: list[int], bits: int) -> None:
    numbers = [number & ~0xFFFFFFFF | place for place, number in enumerate(numbers)]
    count = len(numbers)
    for keys in KEYS_TWINS:
        source, target = array("Q", numbers), array("Q", [0]) * count
        for shift in (32, 43, 54):
            keys.sort_pass(source, target, count, shift)
            source, target = target, source
        ends = array("I", [0]) * ((1 << bits) + 1)
        keys.count_buckets(source, count, bits, ends)

        assert list(source) == sorted(numbers)
        assert list(ends) == [
            sum(number >> 32 < one << (32 - bits) for number in numbers)
            for one in range((1 << bits) + 1)
        ]
        for number in numbers[:3]:
            wanted = [
                one & 0xFFFFFFFF
                for one in numbers
                if one >> 32 == number >> 32 and one & 0xFFFFFFFF >= 2
            ]
            assert keys.scan_entries(array("Q", numbers), count, number >> 32, 2) == wanted


@pytest.mark.parametrize("count", [-1, 3])
def test_no_more_entries_are_touched_than_there_are(keys: ModuleType, count: int) -> None:
    two, ends = array("Q", [0, 0]), array("I", [0, 0])

    with pytest.raises(IndexError):
        keys.sort_pass(two, array("Q", [0] * 9), count, 32)
    with pytest.raises(IndexError):
        keys.sort_pass(array("Q", [0] * 9), two, count, 32)
    with pytest.raises(IndexError):
        keys.count_buckets(two, count, 0, ends)
    with pytest.raises(IndexError):
        keys.count_buckets(two, 2, 1, ends)
    with pytest.raises(IndexError):
        keys.scan_entries(two, count, 0, 0)


def test_the_pure_codec_locates_alike() -> None:
    messages: list[Row] = [(b"key", b"value"), (None, None), (b"", b""), (b"k" * 200, None)]
    payload, places = located(messages)
    again = array("q", [0]) * len(places)
    PURE.locate_records(payload, 4, 10, 3, 1_000, again)

    assert again == places

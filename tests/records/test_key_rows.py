"""The records of one key are those that a reader of the whole batch would keep."""

import time

from hypothesis import given
from hypothesis import strategies as st

from waystation.model.offsets import Millis
from waystation.records.batch import BatchBuilder, rows_of
from waystation.records.compression import Codec
from waystation.records.header import peek
from waystation.records.key_rows import rows_of_key

# Few letters, so that keys are found in values, in headers and in other keys.
letters = st.binary(max_size=4).map(lambda drawn: bytes(one % 3 for one in drawn))
records = st.lists(
    st.tuples(
        st.none() | letters,
        st.none() | letters,
        st.lists(
            st.tuples(st.sampled_from(["a", "\x01", "\x02"]), st.none() | letters), max_size=2
        ),
        st.integers(0, 1 << 40),
    ),
    min_size=1,
    max_size=40,
)


@given(records, letters, st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_the_rows_of_a_key_are_those_of_all_that_have_it(
    wanted: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    key: bytes,
    codec: Codec,
) -> None:
    builder = BatchBuilder(codec)
    for its_key, value, headers, timestamp in wanted:
        builder.append(its_key, value, headers, timestamp=Millis(timestamp))
    batch = builder.build()

    found = rows_of_key(batch, peek(batch), key)

    assert found == [row for row in rows_of(batch) if row[2] == key]


def test_a_key_that_values_are_full_of_costs_no_more_than_another() -> None:
    builder = BatchBuilder()
    for number in range(12):
        builder.append(b"a" if number % 3 else b"aa", b"a" * 80_000, timestamp=Millis(0))
    batch = builder.build()
    began_s = time.process_time()

    found = rows_of_key(batch, peek(batch), b"a")

    assert [row[0] for row in found] == [1, 2, 4, 5, 7, 8, 10, 11]
    assert time.process_time() - began_s < 0.08

"""The records of one key are those that a reader of the whole batch would keep."""

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

"""Offsets as Spark keeps them, and as users write them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.ids import TopicPartition
from waystation.spark.errors import BadOptionError
from waystation.spark.offsets import offsets_of, parse_offsets, parse_partitions, to_json

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "b-1"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.integers(0, 1 << 62))


@given(offsets)
def test_spark_gives_back_what_it_was_told(known: dict[TopicPartition, int]) -> None:
    text = json.dumps(to_json(known))

    assert offsets_of(json.loads(text)) == known


@given(offsets, st.randoms())
def test_the_same_offsets_have_the_same_text(known: dict[TopicPartition, int], chance) -> None:  # type: ignore[no-untyped-def]
    pairs = list(known.items())
    chance.shuffle(pairs)

    assert json.dumps(to_json(dict(pairs))) == json.dumps(to_json(known))


def test_partitions_stand_in_order_of_their_numbers() -> None:
    told = to_json({TopicPartition("t", 10): 1, TopicPartition("t", 9): 2})

    assert json.dumps(told) == '{"t": {"9": 2, "10": 1}}'


def test_a_user_may_name_the_edges() -> None:
    found = parse_offsets("startingOffsets", '{"t": {"0": -2, "1": 5}}', lowest=-2)

    assert found == {TopicPartition("t", 0): -2, TopicPartition("t", 1): 5}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"t": 5}', '{"t": {}}', '{"t": {"x": 5}}', '{"t": {"-1": 5}}'),
        *('{"t": {"0": -3}}', '{"t": {"0": "5"}}', '{"t": {"0": 1.5}}', '{"t": {"0": true}}'),
    ],
)
def test_what_is_no_offset_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(BadOptionError, match="startingOffsets"):
        parse_offsets("startingOffsets", text, lowest=-2)


def test_partitions_to_read_are_listed_once_each() -> None:
    found = parse_partitions("assign", '{"b": [1, 0, 1], "a": [2]}')

    assert found == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))


@pytest.mark.parametrize("text", ["t", "{}", '{"t": 0}', '{"t": [-1]}', '{"t": ["x"]}', "[]"])
def test_what_is_no_list_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(BadOptionError, match="assign"):
        parse_partitions("assign", text)

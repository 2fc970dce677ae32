"""Stored values: readable by their successors, refused where guessing would be needed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.cluster.values import (
    BrokerValue,
    ClusterValue,
    ConfigValue,
    ControllerValue,
    CounterValue,
    PartitionValue,
    TopicValue,
    Value,
    decode,
    encode,
)
from waystation.model.errors import MetadataFormatError
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicId

nodes = st.integers(0, 9).map(NodeId)
sets = st.lists(nodes, max_size=3).map(tuple)
counts = st.integers(0, 1 << 62)
values = st.one_of(
    st.builds(ClusterValue, id=st.text()),
    st.builds(
        BrokerValue,
        epoch=counts.map(BrokerEpoch),
        host=st.text(),
        port=st.integers(0, 65_535),
        rack=st.none() | st.text(),
    ),
    st.builds(ControllerValue, node=nodes, epoch=counts),
    st.builds(TopicValue, id=st.uuids().map(TopicId), replicas=st.lists(sets).map(tuple)),
    st.builds(
        PartitionValue,
        leader=st.none() | nodes,
        leader_epoch=counts.map(LeaderEpoch),
        in_sync=sets,
        eligible=sets,
        partition_epoch=counts.map(PartitionEpoch),
    ),
    st.builds(ConfigValue, options=st.dictionaries(st.text(), st.text())),
    st.builds(CounterValue, next=counts),
)


@given(values)
def test_what_is_encoded_is_decoded(value: Value) -> None:
    assert decode(type(value), "key", encode(value)) == value


@given(values)
def test_every_value_names_its_format(value: Value) -> None:
    assert json.loads(encode(value))["v"] == 1


@given(values)
def test_fields_that_a_later_version_adds_are_ignored(value: Value) -> None:
    stored = json.dumps({**json.loads(encode(value)), "later": [1, 2]}).encode()

    assert decode(type(value), "key", stored) == value


@pytest.mark.parametrize(
    "stored",
    [
        b'{"v": 2, "next": 1}',
        b'{"v": 1}',
        b'{"v": 1, "next": "one"}',
        b"[]",
        b"\xff",
        b"",
    ],
)
def test_what_cannot_be_read_is_refused_with_its_key(stored: bytes) -> None:
    with pytest.raises(MetadataFormatError, match="ids/producers"):
        decode(CounterValue, "ids/producers", stored)

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
    DrainValue,
    LeavingValue,
    PartitionValue,
    ReassignmentValue,
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
        machine=st.none() | st.text(),
        clean=st.booleans(),
        features=st.dictionaries(st.text(), st.integers(0, 9)),
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
        unclean_epoch=counts.map(LeaderEpoch),
    ),
    st.builds(ReassignmentValue, target=sets, origin=sets),
    st.builds(LeavingValue, epoch=counts.map(BrokerEpoch)),
    st.just(DrainValue()),
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


def test_what_an_older_version_wrote_is_read_with_nothing_assumed() -> None:
    broker = b'{"v":1,"epoch":3,"host":"here","port":9092,"rack":null}'
    state = b'{"v":1,"leader":1,"leader_epoch":2,"in_sync":[1],"eligible":[],"partition_epoch":4}'

    old = decode(BrokerValue, "brokers/1", broker)
    assert (old.machine, old.clean, old.features) == (None, False, {})
    assert decode(PartitionValue, "partitions/x/0", state).unclean_epoch == -1


def test_a_reassignment_says_where_from() -> None:
    stored = encode(ReassignmentValue(target=(NodeId(2),), origin=(NodeId(1),)))

    assert json.loads(stored) == {"v": 1, "target": [2], "from": [1]}

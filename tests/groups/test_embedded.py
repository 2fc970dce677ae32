"""The bytes that classic consumers embed, against another implementation and against malice."""

from contextlib import suppress

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st

from waystation.groups.embedded import (
    Assignment,
    EmbeddedProtocolError,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)

names = st.text(max_size=20)
partitions = st.lists(
    st.tuples(names, st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)), max_size=4
).map(tuple)
user_data = st.none() | st.binary(max_size=20)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, max_size=5).map(tuple),
    version=st.integers(0, 3),
    user_data=user_data,
    owned=partitions,
    generation=st.integers(-1, 2**31 - 1),
    rack_id=st.none() | names,
)
assignments = st.builds(
    Assignment, partitions=partitions, version=st.integers(0, 3), user_data=user_data
)


def as_of(version: int, subscription: Subscription) -> Subscription:
    """What a version can hold."""
    held = Subscription(subscription.topics, version, subscription.user_data)
    if version >= 1:
        held = held._replace(owned=subscription.owned)
    if version >= 2:
        held = held._replace(generation=subscription.generation)
    if version >= 3:
        held = held._replace(rack_id=subscription.rack_id)
    return held


@given(subscriptions)
def test_a_subscription_comes_back_as_far_as_its_version_holds_it(
    subscription: Subscription,
) -> None:
    read = read_subscription(write_subscription(subscription))

    assert read == as_of(subscription.version, subscription)


@given(assignments)
def test_an_assignment_comes_back(assignment: Assignment) -> None:
    assert read_assignment(write_assignment(assignment)) == assignment


def test_another_clients_subscription_is_read() -> None:
    octets = ConsumerProtocolMemberMetadata(0, ["orders", "café"], b"mine").encode()

    assert read_subscription(octets) == Subscription(("orders", "café"), 0, b"mine")
    assert write_subscription(Subscription(("orders", "café"), 0, b"mine")) == octets


def test_another_client_reads_our_assignment() -> None:
    octets = write_assignment(Assignment((("orders", (0, 2)),), version=0, user_data=b""))

    read = ConsumerProtocolMemberAssignment.decode(octets)

    assert (read.version, read.assignment, read.user_data) == (0, [("orders", [0, 2])], b"")


def test_bytes_as_kafka_writes_them() -> None:
    octets = bytes.fromhex(
        "0003"  # version
        "00000001 0001 61"  # topics: a
        "ffffffff"  # no user data
        "00000001 0001 61 00000002 00000000 00000005"  # owned: a 0, 5
        "00000007"  # generation
        "0002 7231"  # rack: r1
    )

    assert read_subscription(octets) == Subscription(("a",), 3, None, (("a", (0, 5)),), 7, "r1")


def test_the_error_is_a_value_error() -> None:
    assert issubclass(EmbeddedProtocolError, ValueError)


def test_no_bytes_assign_nothing() -> None:
    assert read_assignment(b"").partitions == ()


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    octets = bytearray(write_subscription(Subscription(("a",), owned=(("a", (1,)),))))
    octets[0:2] = (9).to_bytes(2, "big")

    read = read_subscription(bytes(octets) + b"what is to come")

    assert (read.version, read.topics, read.owned) == (9, ("a",), (("a", (1,)),))


@pytest.mark.parametrize("cut_field", ["user data", "owned", "generation", "rack"])
def test_last_fields_may_be_missing(cut_field: str) -> None:
    """Some clients announce a version and write less than it holds."""
    ends = {"user data": 9, "owned": 13, "generation": 17, "rack": 21}
    octets = write_subscription(Subscription(("a",), rack_id="r"))

    assert read_subscription(octets[: ends[cut_field]]).topics == ("a",)


@given(subscriptions, st.data())
def test_a_cut_off_subscription_is_refused_or_shorter_never_wrong(
    subscription: Subscription, data: st.DataObject
) -> None:
    octets = write_subscription(subscription)
    cut = octets[: data.draw(st.integers(0, len(octets)))]
    try:
        read = read_subscription(cut)
    except EmbeddedProtocolError:
        return

    whole = as_of(subscription.version, subscription)
    assert read.topics == whole.topics
    assert read.owned in (whole.owned, ())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(octets: bytes) -> None:
    for read in (read_subscription, read_assignment):
        with suppress(EmbeddedProtocolError):
            read(octets)


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        ("0000 7fffffff", "2147483647 topics in 0 bytes"),
        ("0000 ffffffff", "-1 topics"),
        ("0000 00000001 ffff", "a topic without a name"),
        ("0000 00000001 0002 ff", "text of 2 bytes where 1 are left"),
        ("0000 00000001 0002 fffe 00000000", "not UTF-8"),
        ("ffff 00000000 00000000", "version -1"),
        ("0000 00000000 7fffffff", "user data of 2147483647 bytes where 0 are left"),
        ("0001 00000000 ffffffff 00000001 0001 61 3fffffff", "1073741823 partitions in 0 bytes"),
        ("00", "a 16-bit number of 2 bytes where 1 are left"),
    ],
)
def test_lies_are_refused_with_what_is_wrong(octets: str, says: str) -> None:
    with pytest.raises(EmbeddedProtocolError, match=says):
        read_subscription(bytes.fromhex(octets))

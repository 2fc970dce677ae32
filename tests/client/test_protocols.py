"""What members tell each other is what other clients say and understand."""

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from waystation.client.protocols import (
    MemberState,
    assigned_in,
    assignment_bytes,
    is_cooperative,
    subscriber_of,
    subscription_bytes,
    topics_in,
)
from waystation.client.settings import ASSIGNORS
from waystation.model.ids import TopicPartition

OWNED = (TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("payments", 1))
STATE = MemberState(("orders", "payments"), OWNED, OWNED, generation=7)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_subscription_is_read_back(assignor: str) -> None:
    told = subscriber_of(assignor, "m", "i", subscription_bytes(assignor, STATE))

    assert told == ("m", ("orders", "payments"), "i", OWNED, 7)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_subscription_is_what_aiokafka_reads(assignor: str) -> None:
    told = ConsumerProtocolMemberMetadata.decode(subscription_bytes(assignor, STATE))

    assert list(told.subscription) == ["orders", "payments"]


def test_what_sticky_remembers_is_what_aiokafka_remembers() -> None:
    """A member that gave everything up to join still says what it had."""
    state = STATE._replace(owned=())
    told = ConsumerProtocolMemberMetadata.decode(subscription_bytes("sticky", state))
    remembered = StickyAssignorUserDataV1.decode(told.user_data)

    assert list(remembered.previous_assignment) == [("orders", [0, 2]), ("payments", [1])]
    assert remembered.generation == 7

    theirs = ConsumerProtocolMemberMetadata(
        0, ["orders"], StickyAssignorUserDataV1([("orders", [1, 4])], 3).encode()
    )
    read = subscriber_of("sticky", "m", None, theirs.encode())
    assert read.owned == (TopicPartition("orders", 1), TopicPartition("orders", 4))
    assert read.generation == 3


@pytest.mark.parametrize("junk", [b"", b"\x00", b"\x00\x01\x7f\xff\xff\xff", b"\xff" * 40])
def test_a_member_that_says_nonsense_reads_nothing(junk: bytes) -> None:
    assert subscriber_of("range", "m", None, junk).topics == ()
    assert topics_in(junk) == ()
    assert assigned_in(junk) == ()


@pytest.mark.parametrize("junk", [b"", b"\x00\x00\x00\x05", b"\x00\x00\x00\x01abc", b"\xff" * 9])
def test_a_memory_that_is_nonsense_is_none(junk: bytes) -> None:
    theirs = ConsumerProtocolMemberMetadata(0, ["orders"], junk)

    assert subscriber_of("sticky", "m", None, theirs.encode()).owned == ()


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_an_assignment_is_what_aiokafka_reads(assignor: str) -> None:
    members = [
        subscriber_of(assignor, one, None, subscription_bytes(assignor, STATE._replace(owned=())))
        for one in ("m0", "m1")
    ]
    shares = assignment_bytes(assignor, members, {"orders": 4, "payments": 2})

    read = {one: ConsumerProtocolMemberAssignment.decode(octets) for one, octets in shares.items()}
    assert sorted(where for one in read.values() for where in one.partitions()) == [
        *(("orders", n) for n in range(4)),
        *(("payments", n) for n in range(2)),
    ]
    for one, octets in shares.items():
        assert sorted(assigned_in(octets)) == sorted(map(tuple, read[one].partitions()))


def test_only_those_who_all_allow_it_go_on_reading() -> None:
    assert is_cooperative(["cooperative-sticky"])
    assert not is_cooperative(["range", "cooperative-sticky"])
    assert not is_cooperative(["sticky"])

"""What is asked of brokers about groups: every version, and most mistakes a client can make.

The broker needs ``OPTIONS``.  Questions are about groups and topics whose names begin with
``q-``; nothing else in the broker matters.
"""

from uuid import UUID

from tests.conformance.classic_questions import (
    be_nobody,
    be_static,
    live_alone,
    live_together,
    refuse_joins,
)
from tests.conformance.group_requests import ONE, TWO, describe, list_groups, until, versions
from tests.conformance.interview import Interview
from tests.conformance.offset_questions import forget_offsets, keep_offsets
from tests.conformance.server_side_questions import (
    change_protocols,
    live_server_side,
    refuse_heartbeats,
)
from waystation.messages.delete_groups import DeleteGroupsRequest
from waystation.messages.find_coordinator import FindCoordinatorRequest
from waystation.messages.heartbeat import HeartbeatRequest
from waystation.messages.list_groups import ListGroupsRequest
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "3",
    "group.consumer.max.size": "3",
    "offsets.topic.num.partitions": "4",
}


def ask_all(interview: Interview) -> None:
    """Every question, in an order that matters: groups are what earlier questions made them."""
    two, one = prepare(interview)
    ids = {TWO: two, ONE: one}
    find_coordinators(interview)
    live_alone(interview)
    refuse_joins(interview)
    live_together(interview)
    be_static(interview)
    be_nobody(interview)
    keep_offsets(interview, ids)
    forget_offsets(interview)
    administer(interview)
    live_server_side(interview, ids)
    refuse_heartbeats(interview)
    change_protocols(interview)


def prepare(interview: Interview) -> tuple[UUID, UUID]:
    """The topics, and a coordinator that is ready."""
    ids = interview.topic(TWO, 2), interview.topic(ONE, 1)
    probe = FindCoordinatorRequest(coordinator_keys=["q-probe"])
    until(lambda: interview.line().ask(probe, 4).coordinators[0].error_code == 0)
    until(lambda: interview.line().ask(ListGroupsRequest(), 5).error_code == 0)
    for number in range(30):
        await_coordinator(interview, f"q-probe-{number}")
    return ids


def await_coordinator(interview: Interview, group: str) -> None:
    """Wait until somebody answers for a group, if only to say that nobody is in it."""
    probe = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    answered = ErrorCode.UNKNOWN_MEMBER_ID
    until(lambda: interview.line().ask(probe, 4).error_code == answered)


def find_coordinators(interview: Interview) -> None:
    for version in versions(ApiKey.FIND_COORDINATOR):
        request = FindCoordinatorRequest(key="q-g", coordinator_keys=["q-g", "", "q-h"])
        interview.ask(f"find v{version}", request, version)
    for version in (1, 4, 6):
        request = FindCoordinatorRequest(key="k", key_type=9, coordinator_keys=["k"])
        interview.ask(f"find v{version}: no such type", request, version)
    interview.ask("find v4: nothing", FindCoordinatorRequest(coordinator_keys=[]), 4)


def administer(interview: Interview) -> None:
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        asked = describe("q-offsets-8", "q-nowhere", "q-live", "", operations=True)
        interview.ask(f"describe v{version}", asked, version)
    for version in versions(ApiKey.LIST_GROUPS):
        list_groups(interview, f"list v{version}", version)
    for what, request in {
        "empty ones": ListGroupsRequest(states_filter=["Empty"]),
        "in small letters": ListGroupsRequest(states_filter=["stable"]),
        "of no state": ListGroupsRequest(states_filter=["none"]),
        "classic ones": ListGroupsRequest(types_filter=["classic"]),
        "in large letters": ListGroupsRequest(types_filter=["CLASSIC"]),
        "of no type": ListGroupsRequest(types_filter=["none"]),
        "stable classic ones": ListGroupsRequest(
            states_filter=["Stable"], types_filter=["Classic"]
        ),
    }.items():
        list_groups(interview, f"list v5: {what}", 5, request)
    for version in versions(ApiKey.DELETE_GROUPS):
        empty = f"q-offsets-{version + 2}"
        names = [empty, "q-nowhere", "q-live", empty]
        interview.ask(f"delete v{version}", DeleteGroupsRequest(groups_names=names), version)
        interview.ask(f"delete v{version}: and then", describe(empty), 6)
    interview.ask("delete v2: nothing", DeleteGroupsRequest(), 2)

"""What members of server-side groups ask, and groups that change their protocol."""

from uuid import UUID

from tests.apis.grouping import Seat, commit_request, join_request, sync_request
from tests.conformance.group_requests import (
    BYE,
    ONE,
    TWO,
    UNKNOWN_ID,
    beat,
    commits,
    describe,
    enter,
    heartbeat,
    leave,
    list_groups,
    member_ids,
    owned,
    position,
    seen,
    versions,
)
from tests.conformance.interview import Interview
from waystation.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from waystation.messages.delete_groups import DeleteGroupsRequest
from waystation.messages.list_groups import ListGroupsRequest
from waystation.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from waystation.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from waystation.wire.versions import ApiKey


def live_server_side(interview: Interview, ids: dict[str, UUID]) -> None:
    for version in versions(ApiKey.CONSUMER_GROUP_HEARTBEAT):
        at, group = f"server-side v{version}", f"q-server-{version}"
        first, second = interview.chosen("m-1"), interview.chosen("m-2")
        told = interview.ask(f"{at}: join", beat(group, first, 0, TWO), version)
        epoch = told.member_epoch
        interview.ask(f"{at}: alone", seen(group, operations=True), version)
        request = beat(group, first, epoch, topic_partitions=owned(ids[TWO], 0, 1))
        interview.ask(f"{at}: all is well", request, version)
        other = interview.ask(f"{at}: another", beat(group, second, 0, TWO), version, "bob")
        interview.ask(f"{at}: two", seen(group), version)
        news = interview.ask(f"{at}: gives up one", beat(group, first, epoch), version)
        (left,) = news.assignment.topic_partitions
        waiting = beat(group, second, other.member_epoch)
        interview.ask(f"{at}: not given yet", waiting, version, "bob")
        kept = owned(ids[TWO], *left.partitions)
        done = beat(group, first, news.member_epoch, topic_partitions=kept)
        told = interview.ask(f"{at}: gave it up", done, version)
        given = interview.ask(f"{at}: is given it", waiting, version, "bob")
        interview.ask(f"{at}: settled", seen(group), version)
        offsets_server_side(interview, at, group, told.member_epoch, ids)
        fenced = beat(group, first, told.member_epoch + 9)
        interview.ask(f"{at}: from the future", fenced, version)
        more = beat(group, first, told.member_epoch, subscribed_topic_names=[TWO, ONE])
        interview.ask(f"{at}: subscribes to more", more, version)
        gone = beat(group, second, BYE)
        interview.ask(f"{at}: leaves", gone, version, "bob")
        interview.ask(f"{at}: left", beat(group, second, given.member_epoch), version, "bob")
        interview.ask(f"{at}: for classic eyes", describe(group), 6)
        interview.ask(f"{at}: not deleted", DeleteGroupsRequest(groups_names=[group]), 2)
        list_groups(interview, f"{at}: listed", 5, ListGroupsRequest(types_filter=["consumer"]))
        interview.ask(f"{at}: the last one leaves", beat(group, first, BYE), version)
        interview.ask(f"{at}: empty", seen(group), version)
        interview.ask(f"{at}: deleted", DeleteGroupsRequest(groups_names=[group]), 2)
        interview.ask(f"{at}: gone", seen(group, "q-live"), version)
        interview.ask(f"{at}: nameless", seen(""), version)


def offsets_server_side(
    interview: Interview, at: str, group: str, epoch: int, ids: dict[str, UUID]
) -> None:
    some = commits(ids, two=[position(0, 5)])
    for version in (8, 9, 10):
        for who, seat in {
            "a member": Seat(group, "m-1", epoch),
            "a stale one": Seat(group, "m-1", epoch - 1),
            "an early one": Seat(group, "m-1", epoch + 1),
            "unknown": Seat(group, "ghost", epoch),
            "an outsider": None,
        }.items():
            request = commit_request(group, some, seat)
            interview.ask(f"{at}: commit v{version}: {who}", request, version)
    for version in (9, 10):
        for who, (member, member_epoch) in {
            "a member": ("m-1", epoch),
            "a stale one": ("m-1", epoch - 1),
            "unknown": ("ghost", epoch),
            "anyone": (None, -1),
        }.items():
            asked = OffsetFetchRequestGroup(
                group_id=group, topics=None, member_id=member, member_epoch=member_epoch
            )
            request_all = OffsetFetchRequest(groups=[asked])
            interview.ask(f"{at}: fetch v{version}: {who}", request_all, version)
    forget = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=TWO, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
        ],
    )
    interview.ask(f"{at}: forget what is read", forget, 0)


def refuse_heartbeats(interview: Interview) -> None:
    group = "q-server-side"
    interview.ask("beat: first", beat(group, interview.chosen("m-1"), 0, ONE), 1)
    member = interview.chosen("m-9")
    questions = {
        "no group": beat("", member, 0, ONE),
        "no member": beat(group, "", 3),
        "epoch -3": beat(group, member, -3),
        "away without a name": beat(group, member, -2),
        "empty instance": beat(group, member, 0, ONE, instance_id=""),
        "empty rack": beat(group, member, 0, ONE, rack_id=""),
        "no time-out": beat(group, member, 0, ONE, rebalance_timeout_ms=-1),
        "no subscription": beat(group, member, 0, ONE, subscribed_topic_names=None),
        "nothing owned": beat(group, member, 0, ONE, topic_partitions=None),
        "something owned": beat(group, member, 0, ONE, topic_partitions=owned(UNKNOWN_ID, 0)),
        "no such assignor": beat(group, member, 0, ONE, server_assignor="none"),
        "unknown member": beat(group, member, 3),
        "unknown group": beat("q-nowhere", member, 3),
        "leaves from nowhere": beat(group, member, BYE),
        "leaves from no group": beat("q-nowhere", member, BYE),
        "topics that are not there": beat("q-absent-topics", member, 0, "q-absent"),
        "no topics": beat("q-no-topics", member, 0),
    }
    for version in versions(ApiKey.CONSUMER_GROUP_HEARTBEAT):
        for what, request in questions.items():
            interview.ask(f"beat v{version}: {what}", request, version)
            if version == 0 and request.group_id in ("q-absent-topics", "q-no-topics"):
                gone = beat(request.group_id, member, BYE)
                interview.ask(f"beat v{version}: {what}, bye", gone, version)
    interview.ask("beat v1: a new one without an id", beat(group, "", 0, ONE), 1)
    patterns(interview)
    full = "q-server-full"
    for number in range(1, 5):
        name = interview.chosen(f"m-{number}")
        interview.ask(f"beat: member {number} of 3", beat(full, name, 0, ONE), 1)
    static = "q-server-static"
    interview.ask("beat: static", beat(static, "m-1", 0, ONE, instance_id="i-1"), 1)
    taken = beat(static, "m-2", 0, ONE, instance_id="i-1")
    interview.ask("beat: static, taken", taken, 1)
    interview.ask("beat: static, away", beat(static, "m-1", -2, instance_id="i-1"), 1)
    interview.ask("beat: static, described", seen(static), 1)
    interview.ask("beat: static, back", taken, 1)
    interview.ask("beat: static, the former one", beat(static, "m-1", 1, instance_id="i-1"), 1)


def patterns(interview: Interview) -> None:
    def by_pattern(group: str, pattern: str) -> ConsumerGroupHeartbeatRequest:
        return beat(group, "m-1", 0, subscribed_topic_regex=pattern, subscribed_topic_names=None)

    interview.ask("beat: a bad pattern", by_pattern("q-pattern-bad", "q-("), 1)
    interview.ask("beat: an empty pattern", by_pattern("q-pattern-empty", ""), 1)


def change_protocols(interview: Interview) -> None:
    """A group that speaks one protocol, and a member that speaks the other."""
    seat, _ = enter(interview, "change: connect", "q-other-kind", protocol_type="connect")
    request = sync_request(seat, {seat.member_id: b"x"}, protocol_type="connect")
    interview.ask("change: connect syncs", request, 5)
    refused = beat("q-other-kind", "m-1", 0, ONE)
    interview.ask("change: not from connect", refused, 1, "bob")
    interview.ask("change: unharmed", heartbeat(seat), 4)
    interview.ask("change: server-side", beat("q-taken", "m-1", 0, ONE), 1)
    other_kind = join_request("q-taken", protocol_type="connect")
    interview.ask("change: not by connect", other_kind, 9, "bob")
    enter(interview, "change: once classic", "q-was-classic")
    (left,) = member_ids(interview, "q-was-classic")
    interview.ask("change: it leaves", leave("q-was-classic", (left, None)), 5)
    interview.ask("change: now server-side", beat("q-was-classic", "m-1", 0, ONE), 1)
    interview.ask("change: it is", seen("q-was-classic"), 1)
    interview.ask("change: leaves too", beat("q-was-classic", "m-1", BYE), 1)
    enter(interview, "change: classic again", "q-was-classic")
    interview.ask("change: it is classic", describe("q-was-classic"), 6)

"""What is asked about offsets: kept, read and forgotten, in each version."""

from typing import Any
from uuid import UUID

from tests.apis.grouping import Seat, commit_request, sync_request
from tests.conformance.group_requests import ONE, TWO, commits, enter, fetched, position, versions
from tests.conformance.interview import Interview
from waystation.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from waystation.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from waystation.wire.versions import ApiKey


def keep_offsets(interview: Interview, ids: dict[str, UUID]) -> None:
    live, _ = enter(interview, "offsets: join", "q-live")
    interview.ask("offsets: sync", sync_request(live, {live.member_id: b"all"}), 5)
    for version in versions(ApiKey.OFFSET_COMMIT):
        at, group = f"commit v{version}", f"q-offsets-{version}"
        some = commits(ids, two=[position(1, 5, "note"), position(9, 1)], absent=[position(0, 1)])
        interview.ask(f"{at}: without members", commit_request(group, some), version)
        for what, topics in {
            "nothing": [],
            "only the unknown": commits(ids, absent=[position(0, 1)]),
            "no note": commits(ids, one=[position(0, 7, None)]),
            "long notes": commits(ids, two=[position(0, 1, "x" * 4_097), position(1, 6, "y")]),
            "negative": commits(ids, two=[position(0, -5)]),
        }.items():
            interview.ask(f"{at}: {what}", commit_request(group, topics), version)
        good = commits(ids, two=[position(0, version)])
        for who, seat in {
            "a member": live,
            "unknown member": live._replace(member_id="ghost"),
            "past": live._replace(generation=0),
            "future": live._replace(generation=7),
            "an outsider": None,
        }.items():
            interview.ask(f"{at}: {who}", commit_request("q-live", good, seat), version)
        stranger = Seat("", "ghost", 3)
        request = commit_request(f"q-nowhere-{version}", good, stranger)
        interview.ask(f"{at}: a member of nothing", request, version)
        request = commit_request(group, good, stranger)
        interview.ask(f"{at}: a member of an empty group", request, version)
        interview.ask(f"{at}: nameless", commit_request("", good), version)
    read_offsets(interview, ids)


def read_offsets(interview: Interview, ids: dict[str, UUID]) -> None:
    for version in versions(ApiKey.OFFSET_FETCH):
        at = f"fetch v{version}"
        asked: dict[str, Any] = {
            "some": fetched(ids, two=[1, 0, 9], one=[0]),
            "unknown": fetched(ids, absent=[0, 1], two=[1]),
            "empty": [],
        }
        if version >= 2:
            asked["all"] = None
        for what, topics in asked.items():
            for group in ("q-offsets-9", "q-nowhere", ""):
                request = OffsetFetchRequest(
                    group_id=group,
                    topics=topics,
                    groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
                )
                name = group or "nameless"
                interview.ask(f"{at}: {what} of {name}", request, version)
    for version in (8, 9, 10):
        several = [
            OffsetFetchRequestGroup(group_id=group, topics=fetched(ids, two=[1]))
            for group in ("q-offsets-3", "q-nowhere", "q-offsets-4")
        ]
        request = OffsetFetchRequest(groups=several, require_stable=True)
        interview.ask(f"fetch v{version}: several", request, version)


def forget_offsets(interview: Interview) -> None:
    def delete(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
        wanted = [OffsetDeleteRequestPartition(partition_index=one) for one in partitions]
        return OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=wanted)]
        )

    subscribed, _ = enter(interview, "forget: join", "q-reads", topics=[TWO])
    interview.ask("forget: sync", sync_request(subscribed, {}), 5)
    enter(interview, "forget: connect", "q-connect", protocol_type="connect", line="bob")
    for what, request in {
        "a position": delete("q-offsets-9", TWO, 1),
        "again": delete("q-offsets-9", TWO, 1),
        "unknown partition": delete("q-offsets-9", TWO, 9, 1),
        "unknown topic": delete("q-offsets-9", "q-absent", 0),
        "unknown group": delete("q-nowhere", TWO, 0),
        "nameless": delete("", TWO, 0),
        "what is read": delete("q-reads", TWO, 0),
        "what is not read": delete("q-reads", ONE, 0),
        "of another kind": delete("q-connect", ONE, 0),
        "nothing": OffsetDeleteRequest(group_id="q-offsets-9"),
    }.items():
        interview.ask(f"forget: {what}", request, 0)

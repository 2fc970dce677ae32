"""What members of classic groups ask: whole lives in each version, and every mistake."""

from typing import Any

from tests.apis.grouping import Seat, join_request, sync_request
from tests.conformance.group_requests import (
    TWO,
    describe,
    enter,
    heartbeat,
    leave,
    member_ids,
    until,
    versions,
)
from tests.conformance.interview import Interview
from tests.support.group_members import written_assignment, written_subscription
from waystation.messages.describe_groups import DescribeGroupsRequest
from waystation.wire.versions import ApiKey


def live_alone(interview: Interview) -> None:
    """A member's whole life, in each version of JoinGroup and the versions of its time."""
    said = [("range", written_subscription([TWO])), ("roundrobin", b"more")]
    for version in versions(ApiKey.JOIN_GROUP):
        group, at = f"q-alone-{version}", f"alone v{version}"
        seat, _ = enter(interview, f"{at}: join", group, version, protocols=said)
        older = min(version, 5)
        interview.ask(f"{at}: joining", describe(group), min(version, 6))
        shares = {seat.member_id: written_assignment([(TWO, 0), (TWO, 1)])}
        interview.ask(f"{at}: sync", sync_request(seat, shares), older)
        interview.ask(f"{at}: sync again", sync_request(seat), older)
        interview.ask(f"{at}: heartbeat", heartbeat(seat), min(version, 4))
        asked = describe(group, operations=True)
        interview.ask(f"{at}: stable", asked, min(version, 6))
        again = join_request(group, seat.member_id, protocols=said)
        interview.ask(f"{at}: join as a leader", again, version)
        interview.ask(f"{at}: leave", leave(group, (seat.member_id, None)), older)
        interview.ask(f"{at}: left", heartbeat(seat), min(version, 4))
        interview.ask(f"{at}: empty", describe(group), min(version, 6))


def refuse_joins(interview: Interview) -> None:
    seat, _ = enter(interview, "refuse: first", "q-refuse")
    interview.ask("refuse: sync", sync_request(seat, {seat.member_id: b"all"}), 5)
    for version in versions(ApiKey.JOIN_GROUP):
        at = f"refuse v{version}"
        for what, request in {
            "no name": join_request("", "me"),
            "short session": join_request("q-none", session_timeout_ms=1),
            "long session": join_request("q-none", session_timeout_ms=1 << 30),
            "unknown member": join_request("q-refuse", "ghost"),
            "unknown group": join_request("q-none", "ghost"),
            "no protocol": join_request("q-refuse", protocols=[]),
            "no protocol at first": join_request("q-none", protocols=[]),
            "no type at first": join_request("q-none", protocol_type=""),
            "another type": join_request("q-refuse", protocol_type="connect"),
            "another protocol": join_request("q-refuse", protocols=[("other", b"")]),
        }.items():
            interview.chosen("me")
            interview.chosen("ghost")
            interview.ask(f"{at}: {what}", request, version, "bob")
    interview.ask("refuse: unharmed", heartbeat(seat), 4)
    interview.ask("refuse: described", describe("q-refuse"), 6)


def begin_join(interview: Interview, question: str, group: str, line: str, **asked: Any) -> None:
    """Join a group whose members must join again first; its answer is heard later."""
    told = interview.ask(f"{question}: an id", join_request(group, **asked), 9, line)
    interview.line(line).send(join_request(group, told.member_id, **asked), 9)
    described = DescribeGroupsRequest(groups=[group])
    rebalancing = ("PreparingRebalance",)
    until(lambda: interview.line("cid").ask(described, 5).groups[0].group_state in rebalancing)


def live_together(interview: Interview) -> None:
    group = "q-together"
    first, _ = enter(interview, "together: ann", group, protocols=[("a", b"1"), ("b", b"2")])
    interview.ask("together: ann syncs", sync_request(first, {}, protocol="a"), 5)
    begin_join(interview, "together: bob", group, "bob", protocols=[("b", b"3")])
    interview.ask("together: ann hears", heartbeat(first), 4)
    interview.ask("together: ann must not sync", sync_request(first, protocol="a"), 5)
    interview.ask("together: preparing", describe(group), 6)
    said = [("a", b"1"), ("b", b"2")]
    interview.ask("together: ann again", join_request(group, first.member_id, protocols=said), 9)
    told = interview.hear("together: bob is in", ApiKey.JOIN_GROUP, 9, "bob")
    led, follows = first._replace(generation=2), Seat(group, told.member_id, 2)
    interview.ask("together: completing", describe(group), 6)
    interview.ask("together: heartbeat meanwhile", heartbeat(led), 4)
    interview.line("bob").send(sync_request(follows, protocol="b"), 5)
    shares = {follows.member_id: b"bob's", "stranger": b"nobody's"}
    interview.ask("together: ann shares out", sync_request(led, shares, protocol="b"), 5)
    interview.hear("together: bob's share", ApiKey.SYNC_GROUP, 5, "bob")
    interview.ask("together: stable", describe(group), 6)
    request = join_request(group, follows.member_id, protocols=[("b", b"3")])
    interview.ask("together: bob joins for nothing", request, 9, "bob")
    interview.ask("together: bob leaves", leave(group, (follows.member_id, None)), 5, "bob")
    interview.ask("together: ann hears of it", heartbeat(led), 4)
    request = join_request(group, led.member_id, protocols=said)
    interview.ask("together: ann alone", request, 9)
    fill_up(interview)


def fill_up(interview: Interview) -> None:
    """A group of ``group.max.size`` members takes no other."""
    group = "q-full"
    seat, _ = enter(interview, "full: 1", group, instance_id="i-1")
    for number, line in ((2, "bob"), (3, "dan")):
        interview.line(line).send(join_request(group, instance_id=f"i-{number}"), 9)
        _until_members(interview, group, number)
    interview.line().send(join_request(group, seat.member_id, instance_id="i-1"), 9)
    for line in ("bob", "dan", "ann"):
        interview.hear(f"full: {line} is in", ApiKey.JOIN_GROUP, 9, line)
    for version in versions(ApiKey.JOIN_GROUP):
        interview.ask(f"full: 4 v{version}", join_request(group), version, "eve")
    interview.ask("full: 4, static", join_request(group, instance_id="i-4"), 9, "eve")
    interview.ask("full: unharmed", heartbeat(seat._replace(generation=2), "i-1"), 4)


def _until_members(interview: Interview, group: str, count: int) -> None:
    until(lambda: len(member_ids(interview, group)) == count)


def be_static(interview: Interview) -> None:
    for version in (5, 8, 9):
        group, at = f"q-static-{version}", f"static v{version}"
        seat, _ = enter(interview, f"{at}: join", group, version, instance_id="i-1")
        shares = {seat.member_id: b"mine"}
        interview.ask(f"{at}: sync", sync_request(seat, shares, instance_id="i-1"), 5)
        back = interview.ask(f"{at}: back", join_request(group, instance_id="i-1"), version)
        interview.ask(f"{at}: the former one", heartbeat(seat, "i-1"), 4)
        former = join_request(group, seat.member_id, instance_id="i-1")
        interview.ask(f"{at}: the former one joins", former, version)
        interview.ask(f"{at}: it syncs", sync_request(seat, instance_id="i-1"), 5)
        now = Seat(group, back.member_id, back.generation_id)
        interview.ask(f"{at}: the new one", heartbeat(now, "i-1"), 4)
        interview.ask(f"{at}: the new one's share", sync_request(now, instance_id="i-1"), 5)
        interview.ask(f"{at}: unknown instance", heartbeat(now, "i-9"), 4)
        strangers = [("ghost", "i-1"), ("", "i-9"), ("ghost", None)]
        interview.ask(f"{at}: strangers leave", leave(group, *strangers), 5)
        interview.ask(f"{at}: removed", leave(group, ("", "i-1")), 5)
        interview.ask(f"{at}: empty", describe(group), 6)


def be_nobody(interview: Interview) -> None:
    """Requests of those who are not in the group, or not in its generation."""
    seat, _ = enter(interview, "nobody: first", "q-nobody")
    interview.ask("nobody: sync", sync_request(seat, {seat.member_id: b"all"}), 5)
    others = {
        "no name": seat._replace(group=""),
        "no group": seat._replace(group="q-none"),
        "unknown": seat._replace(member_id="ghost"),
        "no id": seat._replace(member_id=""),
        "past": seat._replace(generation=0),
        "future": seat._replace(generation=2),
        "none": seat._replace(generation=-1),
    }
    for who, other in others.items():
        for version in versions(ApiKey.HEARTBEAT):
            interview.ask(f"heartbeat v{version}: {who}", heartbeat(other), version)
        for version in versions(ApiKey.SYNC_GROUP):
            interview.ask(f"sync v{version}: {who}", sync_request(other), version)
    for who in ("no name", "no group", "unknown", "no id"):
        for version in versions(ApiKey.LEAVE_GROUP):
            request = leave(others[who].group, (others[who].member_id, None))
            interview.ask(f"leave v{version}: {who}", request, version)
    for what, said in {
        "no type": {"protocol_type": None},
        "no protocol": {"protocol": None},
        "another type": {"protocol_type": "x"},
        "another protocol": {"protocol": "x"},
    }.items():
        interview.ask(f"sync v5: {what}", sync_request(seat, **said), 5)  # type: ignore[arg-type]
    interview.ask("leave v5: nobody at all", leave("q-nobody"), 5)
    interview.ask("nobody: unharmed", heartbeat(seat), 4)

"""Groups that change their kind while members go on, and members of both protocols in one."""

import pytest

from tests.groups.consumers import Consumer, Server, a_join, partitions, settle
from tests.groups.coordinator import GROUP, subscription
from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import Joined
from waystation.groups.embedded import Assignment, read_assignment, write_assignment
from waystation.groups.records import (
    ClassicGroupForgotten,
    ConsumerGroupForgotten,
)
from waystation.model.errors import (
    FencedInstanceIdError,
    GroupFullError,
    GroupNotFoundError,
    IllegalGenerationError,
    InconsistentProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnsupportedVersionError,
)


@pytest.fixture
def server() -> Server:
    server = Server()
    server.create("orders", 4)
    return server


def kind(server: Server) -> str:
    return server.machine._groups[GROUP].kind


def shares(**by_member: tuple[int, ...]) -> dict[str, bytes]:
    """What a classic leader hands out, of "orders"."""
    return {
        member_id: write_assignment(Assignment((("orders", indexes),) if indexes else ()))
        for member_id, indexes in by_member.items()
    }


def a_classic_group(server: Server, *instances: str | None) -> list[Joined]:
    """A stable classic group in which the members, one or two, share "orders"."""
    members = server.stable(*instances)
    leader = next(one for one in members if one.member_id == one.leader)
    split = [(0, 1, 2, 3)] if len(members) == 1 else [(0, 1), (2, 3)]
    handed_out = dict(zip((one.member_id for one in members), split, strict=True))
    # ``stable`` hands out ids: hand out partitions in one more round.
    rejoined = [
        server.join(one.member_id, instance_id=instance)
        for one, instance in sorted(
            zip(members, instances, strict=True), key=lambda pair: pair[0] is not leader
        )
    ]
    joined = [answer.joined for answer in rejoined]
    leading = next(one for one in joined if one.member_id == one.leader)
    instance_of = dict(zip((one.member_id for one in members), instances, strict=True))
    for one in sorted(joined, key=lambda one: one is leading):
        handing = shares(**handed_out) if one is leading else None
        server.sync(one, handing, instance_id=instance_of[one.member_id])
    by_id = {one.member_id: one for one in joined}
    return [by_id[one.member_id] for one in members]


def synced(server: Server, joined: Joined, instance_id: str | None = None) -> tuple[int, ...]:
    """The partitions of "orders" that the member is told to read."""
    answer = server.sync(joined, instance_id=instance_id).synced
    return dict(read_assignment(answer.assignment).partitions).get("orders", ())


# --- upgrade ----------------------------------------------------------------------------------


def test_a_classic_group_is_upgraded_when_someone_joins_with_the_new_protocol(
    server: Server,
) -> None:
    first, second = a_classic_group(server, None, None)

    answer = server.joined("new", "orders")

    assert kind(server) == "consumer"
    assert answer.member_epoch == first.generation + 1
    assert answer.assignment == ()
    reads = {m.member_id: (m.assignment, m.is_classic) for m in server.described().members}
    topic = server.topics.named("orders")
    assert topic is not None
    assert reads[first.member_id] == (partitions(topic.id, 0, 1), True)
    assert reads[second.member_id] == (partitions(topic.id, 2, 3), True)
    assert sum(isinstance(record, ClassicGroupForgotten) for record in server.log) == 1


def test_classic_members_go_on_and_give_way(server: Server) -> None:
    """Eager members join again with nothing, and get what is left to them."""
    first, second = a_classic_group(server, None, None)
    new = Consumer(server, "new", "orders")

    assert isinstance(server.heartbeat(first), RebalanceInProgressError)
    again = [server.join(one.member_id).joined for one in (first, second)]
    assert [one.generation for one in again] == [first.generation + 1] * 2
    assert {one.leader for one in again} == {""}
    told = [synced(server, one) for one in again]
    new.beat()

    assert sorted(len(indexes) for indexes in told) == [1, 2]
    assert len(new.reads) == 1
    assert [server.heartbeat(one) for one in again] == [None, None]
    assert server.group.state == "Stable"


def test_a_cooperative_member_keeps_reading_what_it_keeps(server: Server) -> None:
    (only,) = a_classic_group(server, None)
    new = Consumer(server, "new", "orders")
    owned = (("orders", (0, 1, 2, 3)),)

    def protocols(*indexes: int) -> tuple[tuple[str, bytes], ...]:
        held = (("orders", indexes),) if indexes else ()
        return (("range", subscription("orders", owned=held)),)

    first = server.join(only.member_id, protocols=protocols(*owned[0][1])).joined
    assert first.generation == only.generation, "it must give up first"
    kept = synced(server, first)
    assert len(kept) == 2
    new.beat()
    assert new.reads == set()
    assert isinstance(server.heartbeat(first), RebalanceInProgressError)

    second = server.join(only.member_id, protocols=protocols(*kept)).joined
    assert second.generation == only.generation + 1
    assert synced(server, second) == kept
    new.beat()
    assert len(new.reads) == 2


def test_a_cooperative_member_that_missed_a_generation_begins_anew(server: Server) -> None:
    """It may believe to own what others read; in the new generation it would commit for it."""
    first, second = a_classic_group(server, None, None)
    Consumer(server, "new", "orders")
    owned = (("orders", (0, 1, 2)),)

    answer = server.join(
        first.member_id, protocols=(("range", subscription("orders", owned=owned)),)
    )

    assert isinstance(answer.value, UnknownMemberError)
    assert set(server.group.book.members) == {second.member_id, "new"}


def test_a_classic_member_that_waits_for_others_is_called_when_they_are_done(
    server: Server,
) -> None:
    """It got only what was free when it joined, and fetches the rest when it is."""
    new = Consumer(server, "new", "orders")
    joined = server.join().joined
    assert synced(server, joined) == ()
    assert server.heartbeat(joined) is None, "nothing to fetch yet"

    new.beat()
    new.beat()
    assert isinstance(server.heartbeat(joined), RebalanceInProgressError)
    again = server.join(joined.member_id).joined

    assert len(synced(server, again)) == 2
    assert again.generation == joined.generation


def test_those_who_wait_in_the_classic_group_are_told_to_join_again(server: Server) -> None:
    first, second = a_classic_group(server, None, None)
    waiting = server.join(first.member_id, protocols=(("range", subscription("orders", "x")),))
    assert not waiting.is_there

    server.joined("new", "orders")

    assert isinstance(waiting.value, RebalanceInProgressError)
    assert server.join(first.member_id).joined.generation > first.generation
    assert server.join(second.member_id).joined.generation > second.generation


def test_silent_classic_members_fall_out_of_the_upgraded_group(server: Server) -> None:
    first, _ = a_classic_group(server, None, None)
    new = Consumer(server, "new", "orders")

    for _ in range(3):
        server.wait(4_000)
        server.heartbeat(first)
        new.beat()

    assert set(server.group.book.members) == {first.member_id, "new"}


def test_a_classic_member_that_does_not_join_again_in_time_is_removed(server: Server) -> None:
    (only,) = a_classic_group(server, None)
    new = Consumer(server, "new", "orders")
    for _ in range(16):
        server.heartbeat(only)
        server.wait(4_000)
        new.beat()

    assert list(server.group.book.members) == ["new"]
    assert len(new.reads) == 4


def test_an_upgraded_group_survives_a_restart(server: Server) -> None:
    first, second = a_classic_group(server, None, None)
    new = Consumer(server, "new", "orders")

    server.restart()

    for one in (first, second):
        server.join(one.member_id)
    new.beat()
    assert len(new.reads) == 1


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_the_policy_may_forbid_an_upgrade(policy: str) -> None:
    server = Server(group_consumer_migration_policy=policy)
    server.create("orders", 4)
    (only,) = a_classic_group(server, None)

    answer = server.answer(a_join("new", "orders"))

    assert isinstance(answer, GroupNotFoundError)
    assert "group.consumer.migration.policy" in str(answer)
    assert server.heartbeat(only) is None


def test_an_empty_classic_group_gives_way_whatever_the_policy() -> None:
    server = Server(group_consumer_migration_policy="disabled")
    server.create("orders", 4)
    (only,) = a_classic_group(server, None)
    server.committed({("orders", 0): 7}, generation=only.generation, member_id=only.member_id)
    server.leave((only.member_id, None))

    assert server.joined("new", "orders").member_epoch == 1
    assert server.offsets() == {("orders", 0): 7}
    assert kind(server) == "consumer"


def test_groups_that_are_no_consumers_stay_what_they_are(server: Server) -> None:
    server.stable(None, protocol_type="connect")

    assert isinstance(server.answer(a_join("new", "orders")), GroupNotFoundError)
    assert kind(server) == "classic"


def test_a_group_that_would_be_too_large_stays_what_it_is() -> None:
    server = Server(group_consumer_max_size=1)
    server.create("orders", 4)
    a_classic_group(server, None, None)

    answer = server.answer(a_join("new", "orders"))

    assert isinstance(answer, GroupNotFoundError)
    assert "group.consumer.max.size" in str(answer)


def test_a_full_group_is_not_upgraded_for_one_who_cannot_join() -> None:
    server = Server(group_consumer_max_size=2)
    server.create("orders", 4)
    first, _ = a_classic_group(server, None, None)
    before = len(server.log)

    assert isinstance(server.answer(a_join("new", "orders")), GroupFullError)
    assert len(server.log) == before
    assert server.heartbeat(first) is None


@pytest.mark.parametrize(("assignor", "may"), [("our-own", False), ("cooperative-sticky", True)])
def test_only_unusual_assignors_keep_a_group_classic_for_the_data_they_add(
    server: Server, assignor: str, may: bool
) -> None:
    """librdkafka's sticky ones add data that nobody reads."""
    protocols = ((assignor, subscription("orders")),)
    (only,) = server.stable(None, protocols=protocols)
    joined = server.join(only.member_id, protocols=protocols).joined
    mine = write_assignment(Assignment((("orders", (0,)),), user_data=b"state"))
    server.sync(joined, {only.member_id: mine})

    answer = server.answer(a_join("new", "orders"))

    assert isinstance(answer, UnsupportedVersionError) != may
    assert kind(server) == ("consumer" if may else "classic")


def test_bytes_that_cannot_be_read_keep_a_group_classic(server: Server) -> None:
    server.stable(None, protocols=(("range", b"?"),))

    assert isinstance(server.answer(a_join("new", "orders")), GroupNotFoundError)
    assert kind(server) == "classic"


def test_what_a_cooperative_member_may_still_read_is_held_for_it(server: Server) -> None:
    """It joined a generation but has not fetched what to read in it, and reads on."""
    (only,) = a_classic_group(server, None)
    owned = (("orders", (0, 1, 2, 3)),)
    protocols = (("range", subscription("orders", owned=owned)),)
    joined = server.join(only.member_id, protocols=protocols).joined
    server.sync(joined, shares(**{only.member_id: (0,)}))

    new = Consumer(server, "new", "orders")
    new.beat()
    assert new.reads == set()

    kept = (("range", subscription("orders", owned=(("orders", (0,)),))),)
    server.join(only.member_id, protocols=kept)
    new.beat()
    assert len(new.reads) == 2


def test_a_partition_that_two_claim_goes_to_one(server: Server) -> None:
    first, second = server.stable(None, None)
    leader, other = (first, second) if first.leader == first.member_id else (second, first)
    waiting = server.join(leader.member_id)
    server.join(other.member_id)
    both = {one.member_id: (0, 1, 2, 3, 99) for one in (first, second)}
    server.sync(waiting.joined, shares(**both))

    server.joined("new", "orders")

    current = server.group.book.currents
    held = [current[one.member_id].assigned for one in (first, second)]
    assert sorted(len(p[0][1]) if p else 0 for p in held) == [0, 4]


# --- members of both protocols ----------------------------------------------------------------


def test_a_classic_member_may_join_a_group_of_the_new_kind(server: Server) -> None:
    new = Consumer(server, "new", "orders")

    refused = server.join_once()
    assert isinstance(refused.value, MemberIdRequiredError)
    joined = server.join(refused.value.member_id).joined
    new.beat()
    new.beat()
    again = server.join(joined.member_id).joined

    assert (again.protocol_type, again.protocol, again.leader) == ("consumer", "range", "")
    assert len(synced(server, again)) == 2
    assert len(new.reads) == 2


def test_an_id_that_nobody_told_is_unknown(server: Server) -> None:
    """Who was removed may believe that it owns partitions, and must learn that it does not."""
    Consumer(server, "new", "orders")

    assert isinstance(server.join_once("made-up").value, UnknownMemberError)


def test_old_versions_join_without_being_told_their_id_first(server: Server) -> None:
    Consumer(server, "new", "orders")

    joined = server.join_once(requires_member_id=False).joined

    assert joined.member_id in server.group.book.members


def test_classic_members_are_checked_as_ever(server: Server) -> None:
    Consumer(server, "new", "orders")
    joined = server.join().joined

    stale = joined._replace(generation=joined.generation - 1)
    assert isinstance(server.heartbeat(stale), IllegalGenerationError)
    assert isinstance(server.sync(stale).value, IllegalGenerationError)
    assert isinstance(server.sync(joined, protocol="roundrobin").value, InconsistentProtocolError)
    assert isinstance(server.sync(joined, protocol_type="x").value, InconsistentProtocolError)
    assert isinstance(server.heartbeat(joined._replace(member_id="x")), UnknownMemberError)
    assert isinstance(server.heartbeat(joined._replace(member_id="new")), UnknownMemberError)
    assert isinstance(server.join(session_timeout_ms=1).value, InvalidSessionTimeoutError)
    assert isinstance(server.join(protocol_type="connect").value, InconsistentProtocolError)
    assert isinstance(server.join(protocols=()).value, InconsistentProtocolError)
    foreign = (("roundrobin", subscription("orders")),)
    assert isinstance(server.join(protocols=foreign).value, InconsistentProtocolError)
    unreadable = (("range", b"\x00"),)
    assert isinstance(server.join(protocols=unreadable).value, InconsistentProtocolError)


def test_commits_are_checked_by_the_protocol_that_a_member_speaks(server: Server) -> None:
    new = Consumer(server, "new", "orders")
    joined = server.join().joined
    offsets = {("orders", 0): 3}

    server.committed(offsets, generation=joined.generation, member_id=joined.member_id)
    server.committed(offsets, generation=new.epoch, member_id="new")
    wrong = server.commit(offsets, generation=77, member_id=joined.member_id)
    assert isinstance(wrong, IllegalGenerationError)
    assert isinstance(server.commit(offsets, generation=77, member_id="new"), StaleMemberEpochError)


def test_a_static_classic_member_is_replaced_by_its_upgraded_self(server: Server) -> None:
    """A rolling restart: the process stops and comes back with the new protocol."""
    (only,) = a_classic_group(server, "one")

    new = Consumer(server, "new", "orders", instance_id="one")

    assert len(new.reads) == 4
    assert list(server.group.book.members) == ["new"]
    assert isinstance(server.heartbeat(only, instance_id="one"), FencedInstanceIdError)


def test_an_upgrade_shares_out_even_if_it_only_replaces_a_static_member(server: Server) -> None:
    """What classic members were given last need not be everything that there is."""
    (only,) = a_classic_group(server, "one")
    assert server.heartbeat(only, instance_id="one") is None
    server.grow("orders", 6)

    new = Consumer(server, "new", "orders", instance_id="one")
    settle(new)

    assert len(new.reads) == 6


def test_a_static_member_may_go_back_to_the_classic_protocol(server: Server) -> None:
    new = Consumer(server, "new", "orders", instance_id="one")
    other = Consumer(server, "other", "orders")
    settle(new, other)

    joined = server.join(instance_id="one").joined

    assert len(synced(server, joined, "one")) == 2
    assert isinstance(server.beat("new", new.epoch, instance_id="one"), FencedInstanceIdError)


def test_an_administrator_removes_static_members_of_either_protocol(server: Server) -> None:
    Consumer(server, "new", "orders", instance_id="one")
    server.join(instance_id="two")
    Consumer(server, "other", "orders")

    left = server.leave(("", "one"), ("", "two"), ("", "three"), ("other", None))

    errors = [error for _, error in left.members]
    assert errors[:2] == [None, None]
    assert isinstance(errors[2], UnknownMemberError)
    assert isinstance(errors[3], UnknownMemberError), "it does not speak the classic protocol"
    assert list(server.group.book.members) == ["other"]


# --- downgrade --------------------------------------------------------------------------------


def test_the_group_is_downgraded_when_the_last_new_member_leaves(server: Server) -> None:
    first, second = a_classic_group(server, None, None)
    new = Consumer(server, "new", "orders")
    again = [server.join(one.member_id).joined for one in (first, second)]
    for one in again:
        synced(server, one)
    new.beat()

    new.leave()
    server.wait(0)

    assert kind(server) == "classic"
    assert server.state() == "PreparingRebalance"
    assert sum(isinstance(record, ConsumerGroupForgotten) for record in server.log) == 1
    assert all(isinstance(server.heartbeat(one), RebalanceInProgressError) for one in again)
    joins = [server.join(one.member_id) for one in again]
    joined = [join.joined for join in joins]
    assert {one.generation for one in joined} == {again[0].generation + 1}
    leader = next(one for one in joined if one.member_id == one.leader)
    assert len(leader.members) == 2
    for one in sorted(joined, key=lambda one: one is leader):
        server.sync(one, shares(**{leader.member_id: (0, 1, 2, 3)}) if one is leader else None)
    assert server.state() == "Stable"


def test_the_group_is_downgraded_when_the_last_new_member_falls_silent(server: Server) -> None:
    (only,) = a_classic_group(server, None)
    Consumer(server, "new", "orders")
    joined = server.join(only.member_id).joined
    synced(server, joined)

    for _ in range(12):
        server.wait(4_000)
        server.heartbeat(joined)

    assert kind(server) == "classic"


def test_a_downgrade_that_a_crash_interrupts_is_carried_on(server: Server) -> None:
    """The members must share out, whoever leads and whatever happened to the coordinator."""
    (only,) = a_classic_group(server, None)
    new = Consumer(server, "new", "orders")
    joined = server.join(only.member_id).joined
    synced(server, joined)
    new.leave()

    server.restart()

    assert kind(server) == "classic"
    assert isinstance(server.heartbeat(joined), RebalanceInProgressError)
    assert server.join(only.member_id).joined.leader == only.member_id


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_the_policy_may_forbid_a_downgrade(policy: str) -> None:
    server = Server(group_consumer_migration_policy=policy)
    server.create("orders", 4)
    new = Consumer(server, "new", "orders")
    joined = server.join().joined

    new.leave()
    server.wait(0)

    assert kind(server) == "consumer"
    assert isinstance(server.heartbeat(joined), RebalanceInProgressError)
    again = server.join(joined.member_id).joined
    assert len(synced(server, again)) == 4


def test_an_empty_group_of_the_new_kind_gives_way_to_a_classic_one(server: Server) -> None:
    Consumer(server, "new", "orders").leave()

    joined = server.join().joined

    assert joined.leader == joined.member_id
    assert kind(server) == "classic"
    replayed = server.replayed()._groups.get(GROUP)
    assert replayed is None or isinstance(replayed, ClassicGroup)


def test_a_member_that_changes_its_protocol_in_a_static_restart_downgrades_the_group(
    server: Server,
) -> None:
    Consumer(server, "new", "orders", instance_id="one")

    joined = server.join(instance_id="one").joined
    server.wait(0)

    assert kind(server) == "classic"
    assert isinstance(server.heartbeat(joined, instance_id="one"), RebalanceInProgressError)
    again = server.join(joined.member_id, instance_id="one").joined
    assert again.leader == joined.member_id
    assert again.generation > joined.generation

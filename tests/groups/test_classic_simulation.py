"""Classic groups under every kind of member, with crashes and replays, by seeds.

The world and its invariants are in ``classic_world.py``; here they run, and show on planted bugs
that they would notice.
"""

from collections.abc import Callable

import pytest

from tests.groups.classic_world import World
from tests.support.soak import count
from waystation.groups.classic import ClassicGroup
from waystation.groups.members import Member, Roster
from waystation.groups.offsets import Offsets
from waystation.groups.rebalances import Rebalances

SEEDS = count(60, 3_000)
EVENTS = 400


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_whatever_members_do_the_group_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + 20):
        World(seed).run(EVENTS)


def test_the_world_meets_what_it_is_about() -> None:
    seen: dict[str, int] = {}
    for seed in range(20):
        world = World(seed)
        world.run(EVENTS)
        for kind, times in world.seen.items():
            seen[kind] = seen.get(kind, 0) + times

    assert seen["Joined"] > 500
    assert seen["Synced"] > 200
    assert seen["Committed"] > 200
    for rare in (
        "FencedInstanceIdError",
        "GroupFullError",
        "IllegalGenerationError",
        "InconsistentProtocolError",
        "MemberIdRequiredError",
        "NotCoordinatorError",
        "RebalanceInProgressError",
        "UnknownMemberError",
    ):
        assert seen.get(rare, 0) >= 3, (rare, seen)


# --- planted bugs -----------------------------------------------------------------------------


def no_new_leader_when_the_leader_goes(patch: pytest.MonkeyPatch) -> None:
    honest = Roster.remove

    def remove(self: Roster, member_id: str) -> Member:
        leader = self.leader
        member = honest(self, member_id)
        self.leader = leader if self._by_id else None
        return member

    patch.setattr(Roster, "remove", remove)


def an_absent_member_may_lead(patch: pytest.MonkeyPatch) -> None:
    def elect(self: Roster, candidates: object) -> bool:
        self.leader = next(reversed(self._by_id), None)
        return self.leader is not None

    patch.setattr(Roster, "elect", elect)


def old_generations_may_commit(patch: pytest.MonkeyPatch) -> None:
    def check(self: ClassicGroup, member_id: str, generation: int, instance_id: object) -> object:
        if generation < 0 and self.state != "Empty":
            return self._unknown(member_id)
        return None if generation < 0 else self._check_member(member_id, instance_id)  # type: ignore[arg-type]

    patch.setattr(ClassicGroup, "check_commit", check)


def fenced_members_go_on(patch: pytest.MonkeyPatch) -> None:
    honest = ClassicGroup.check_commit

    def check(self: ClassicGroup, member_id: str, generation: int, instance_id: object) -> object:
        holder = self.members.of_instance(str(instance_id))
        return honest(self, holder or member_id, generation, None)

    patch.setattr(ClassicGroup, "check_commit", check)


def generations_stand_still(patch: pytest.MonkeyPatch) -> None:
    honest = Rebalances._ask_the_leader

    def ask(self: Rebalances, now: object, draft: object) -> None:
        self.generation -= self.generation > 1
        honest(self, now, draft)  # type: ignore[arg-type]

    patch.setattr(Rebalances, "_ask_the_leader", ask)


def the_removed_are_not_answered(patch: pytest.MonkeyPatch) -> None:
    def remove(self: Rebalances, draft: object, member_id: str) -> None:
        self.members.remove(member_id)
        self._sessions.cancel(member_id)
        self._has_synced(member_id)
        self._joining.pop(member_id, None)
        self._syncing.pop(member_id, None)

    patch.setattr(Rebalances, "_remove", remove)


def syncs_wait_without_an_end(patch: pytest.MonkeyPatch) -> None:
    honest = Rebalances._ask_the_leader

    def ask(self: Rebalances, now: object, draft: object) -> None:
        honest(self, now, draft)  # type: ignore[arg-type]
        self._sync_until = None
        for member in self.members:
            self._sessions.cancel(member.member_id)

    patch.setattr(Rebalances, "_ask_the_leader", ask)


def not_all_members_are_remembered(patch: pytest.MonkeyPatch) -> None:
    honest = Rebalances._stored

    def stored(self: Rebalances, now: object, shares: dict[str, bytes]) -> object:
        whole = honest(self, now, shares)  # type: ignore[arg-type]
        return whole._replace(members=whole.members[:-1] or whole.members)

    patch.setattr(Rebalances, "_stored", stored)


def a_replay_loses_assignments(patch: pytest.MonkeyPatch) -> None:
    honest = Roster.restore

    def restore(self: Roster, members: object, protocol: object, leader: object) -> None:
        known = dict(self._by_id)
        honest(self, members, protocol, leader)  # type: ignore[arg-type]
        for member in self:
            if member.member_id not in known:
                member.assignment = b""

    patch.setattr(Roster, "restore", restore)


def any_protocol_will_do(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roster, "supports", lambda self, protocols: bool(protocols))


def static_members_return_as_new_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roster, "of_instance", lambda self, instance_id: None)


def an_older_commit_wins(patch: pytest.MonkeyPatch) -> None:
    honest = Offsets.keep

    def keep(self: Offsets, record: object) -> None:
        group_id, topic, partition = record[:3]  # type: ignore[index]
        if self.find(group_id, topic, partition) is None:
            honest(self, record)  # type: ignore[arg-type]

    patch.setattr(Offsets, "keep", keep)


def a_sync_answers_with_the_former_assignment(patch: pytest.MonkeyPatch) -> None:
    honest = Rebalances._hand_out

    def hand_out(self: Rebalances, now: object, draft: object, shares: dict[str, bytes]) -> None:
        former = {one.member_id: one.assignment or b"none" for one in self.members}
        honest(self, now, draft, former if self.generation > 2 else shares)  # type: ignore[arg-type]

    patch.setattr(Rebalances, "_hand_out", hand_out)


PLANTED = (
    no_new_leader_when_the_leader_goes,
    an_absent_member_may_lead,
    old_generations_may_commit,
    fenced_members_go_on,
    generations_stand_still,
    the_removed_are_not_answered,
    syncs_wait_without_an_end,
    not_all_members_are_remembered,
    a_replay_loses_assignments,
    any_protocol_will_do,
    static_members_return_as_new_ones,
    an_older_commit_wins,
    a_sync_answers_with_the_former_assignment,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    assert any(breaks(seed) for seed in range(40)), "forty runs noticed nothing"


def breaks(seed: int) -> bool:
    """Whether an invariant, or the machine itself, fails."""
    try:
        World(seed).run(EVENTS)
    except (AssertionError, LookupError):
        return True
    return False

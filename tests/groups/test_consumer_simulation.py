"""Groups of the server-side protocol through seeds full of trouble, and the planted bugs that
prove that the seeds would find real ones.
"""

from collections.abc import Callable

import pytest

from tests.groups import group_world
from tests.support.soak import count
from waystation.groups import assignors, consumer, membership, reconciliation
from waystation.groups.assignors import Subscriber, Targets
from waystation.groups.book import Book, BookDraft
from waystation.groups.consumer import ConsumerGroup
from waystation.groups.membership import Membership
from waystation.groups.reconciliation import Owned
from waystation.groups.records import (
    ConsumerMemberForgotten,
    MemberCurrentStored,
    MemberTargetForgotten,
    Partitions,
)
from waystation.groups.watch import Watch
from waystation.model.ids import TopicId
from waystation.model.machines import Outcome

SEEDS = count(30, 1_000)
MUTANT_SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_partition_has_two_owners_and_none_is_left_out(seed: int) -> None:
    group_world.run(seed)


Plant = Callable[[pytest.MonkeyPatch], None]


def gives_what_others_hold(patch: pytest.MonkeyPatch) -> None:
    def reckless(
        current: MemberCurrentStored, target: Partitions, epoch: int, owned: Owned, _: object
    ) -> MemberCurrentStored:
        return reconciliation.reconcile(current, target, epoch, owned, lambda partition: True)

    patch.setattr(membership, "reconcile", reckless)


def takes_silence_for_consent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        reconciliation,
        "_has_revoked",
        lambda partitions, owned: owned is None or partitions.isdisjoint(owned),
    )


def does_not_wait_for_what_is_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciliation, "_has_revoked", lambda partitions, owned: True)


def counts_what_is_being_given_up_as_free(patch: pytest.MonkeyPatch) -> None:
    hold = Book._hold

    def careless(self: Book, current: MemberCurrentStored) -> None:
        hold(self, current._replace(revoking=()))
        self.currents[current.member_id] = current

    patch.setattr(Book, "_hold", careless)


def forgets_members_but_not_what_they_hold(patch: pytest.MonkeyPatch) -> None:
    def forget(draft: BookDraft, member_ids: list[str]) -> None:
        for member_id in member_ids:
            draft.note(MemberTargetForgotten(draft.book.group_id, member_id))
            draft.note(ConsumerMemberForgotten(draft.book.group_id, member_id))

    patch.setattr(membership, "forget", forget)


def does_not_share_out_what_leavers_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Membership, "remove", lambda self, draft, now, gone: membership.forget(draft, gone)
    )


def overlooks_new_partitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "topics_changed", lambda self, now: Outcome())


def tells_only_what_changed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer, "asks_for_all", lambda command: False)


def thinks_aloud(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Book, "copy", lambda self: self)


def lets_the_dead_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Watch, "late", lambda self, now: [])
    patch.setattr(Watch, "earliest", lambda self: None)


def begins_without_sessions_after_a_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "_watch_all", lambda self, now: None)
    patch.setattr(ConsumerGroup, "next_deadline", lambda self: self._watch.earliest())


def gives_all_to_one(patch: pytest.MonkeyPatch) -> None:
    def greedy(members: list[Subscriber], counts: dict[TopicId, int]) -> Targets:
        shares = assignors.uniform(members[:1], counts)
        return {member.member_id: shares.get(member.member_id, ()) for member in members}

    patch.setitem(assignors.ASSIGNORS, "uniform", greedy)  # type: ignore[arg-type]


def lets_epochs_go_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        reconciliation,
        "_entering",
        lambda current, epoch: current._replace(epoch=1 + epoch % 4, previous_epoch=current.epoch),
    )


MUTANTS: list[Plant] = [
    gives_what_others_hold,
    takes_silence_for_consent,
    does_not_wait_for_what_is_given_up,
    counts_what_is_being_given_up_as_free,
    forgets_members_but_not_what_they_hold,
    does_not_share_out_what_leavers_held,
    overlooks_new_partitions,
    tells_only_what_changed,
    thinks_aloud,
    lets_the_dead_stay,
    begins_without_sessions_after_a_replay,
    gives_all_to_one,
    lets_epochs_go_back,
]


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(MUTANT_SEEDS):
        try:
            group_world.run(seed)
        except (AssertionError, KeyError, RecursionError):
            return

    pytest.fail(f"{MUTANT_SEEDS} seeds found nothing")

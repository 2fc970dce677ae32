"""Members of both protocols in one group, and everything that happens to groups, by seed."""

from collections.abc import Callable

import pytest

from tests.groups import group_world
from tests.support.soak import count
from waystation.groups import membership, migration
from waystation.groups.book import Book
from waystation.groups.classic_members import ClassicMembers
from waystation.groups.records import ClassicGroupStored, Record

SEEDS = count(30, 1_000)
MUTANT_SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_protocols_and_all_their_troubles(seed: int) -> None:
    group_world.run(seed, classic=True)


Plant = Callable[[pytest.MonkeyPatch], None]


def forgets_what_classic_members_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(migration, "_take", lambda named, topics, taken: ())


def takes_every_join_for_an_eager_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicMembers, "_by_id", lambda self, owned: set())


def begins_generations_anew(patch: pytest.MonkeyPatch) -> None:
    downgrade = migration.downgrade

    def rewound(book: Book, *more: object) -> list[Record]:
        return [
            record._replace(generation=0) if isinstance(record, ClassicGroupStored) else record
            for record in downgrade(book, *more)  # type: ignore[arg-type]
        ]

    patch.setattr(membership, "downgrade", rewound)


def never_calls_classic_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicMembers, "_must_join", lambda self, current: False)


def hands_out_targets_before_they_are_free(patch: pytest.MonkeyPatch) -> None:
    by_name = ClassicMembers._by_name

    def hasty(self: ClassicMembers, assigned: object) -> object:
        for member_id, current in self._book.currents.items():
            if current.assigned == assigned:
                return by_name(self, self._book.targets.get(member_id, ()))
        return by_name(self, assigned)  # type: ignore[arg-type]

    patch.setattr(ClassicMembers, "_by_name", hasty)


def does_not_downgrade(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "may_downgrade", lambda book, settings: False)
    patch.setattr("waystation.groups.consumer.may_downgrade", lambda book, settings: False)


MUTANTS: list[Plant] = [
    forgets_what_classic_members_read,
    takes_every_join_for_an_eager_one,
    begins_generations_anew,
    never_calls_classic_members,
    hands_out_targets_before_they_are_free,
    does_not_downgrade,
]


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(MUTANT_SEEDS):
        try:
            group_world.run(seed, classic=True)
        except (AssertionError, KeyError):
            return

    pytest.fail(f"{MUTANT_SEEDS} seeds found nothing")

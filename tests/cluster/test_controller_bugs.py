"""The simulation of the controller catches what it is for: each bug planted here breaks it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.cluster import control_world
from tests.cluster.control_life import Life
from tests.cluster.control_witness import BrokenError
from tests.cluster.control_world import World

from waystation.cluster import (
    controller,
    draining,
    elections,
    in_sync_changes,
    membership,
    placement,
    reassignment,
    topics,
)
from waystation.cluster.changes import Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.in_sync_changes import Sets
from waystation.cluster.parts import PartitionImage, Site
from waystation.cluster.values import PartitionValue

STEPS = 400
Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


# --- elections ----------------------------------------------------------------------------------


def elects_whoever_lives(patch: Patch) -> None:
    honest = elections.succeed
    patch.setattr(
        elections,
        "succeed",
        lambda partition, electorate, policy: honest(
            partition._replace(in_sync=partition.replicas), electorate, policy
        ),
    )


def elects_uncleanly_unasked(patch: Patch) -> None:
    honest = elections.succeed
    patch.setattr(
        elections, "succeed", lambda p, e, policy: honest(p, e, policy._replace(unclean=True))
    )


def elects_under_the_old_epoch(patch: Patch) -> None:
    def led_by(partition: PartitionImage, leader: Any, sets: Sets, **_: bool) -> PartitionValue:
        state = in_sync_changes.successor(partition, sets)
        return msgspec.structs.replace(state, leader=leader)

    patch.setattr(elections, "led_by", led_by)


def forgets_that_an_election_was_unclean(patch: Patch) -> None:
    honest = elections.led_by
    patch.setattr(elections, "led_by", lambda p, leader, sets, **_: honest(p, leader, sets))


def keeps_unclean_elections_to_itself(patch: Patch) -> None:
    honest = controller.decisions
    patch.setattr(control_world, "decisions", lambda *args: honest(*args)._replace(unclean=[]))


# --- who decides --------------------------------------------------------------------------------


def decides_after_it_was_replaced(patch: Patch) -> None:
    def unguarded(changes: Changes, _: Mapping[str, int]) -> Changes:
        return changes

    patch.setattr(Changes, "guarded", unguarded)


def decides_without_looking_at_the_state_again(patch: Patch) -> None:
    honest = elections.election
    patch.setattr(controller, "election", lambda *args: blind(honest(*args), "partitions/"))


# --- who is in sync -----------------------------------------------------------------------------


def lets_a_follower_in_that_restarted(patch: Patch) -> None:
    honest = in_sync_changes.propose

    def propose(*args: Any) -> in_sync_changes.Proposal | None:
        made = honest(*args)
        return made and made._replace(changes=blind(made.changes, "brokers/"))

    patch.setattr(control_world, "propose", propose)


def believes_that_memory_survives(patch: Patch) -> None:
    honest = membership.end_last_life
    patch.setattr(
        control_world,
        "end_last_life",
        lambda image, node, policy, _: honest(image, node, policy, membership.Condition(True)),
    )


def leads_on_after_a_restart(patch: Patch) -> None:
    patch.setattr(control_world, "end_last_life", lambda *_, **__: [])


def writes_states_under_one_partition_epoch(patch: Patch) -> None:
    honest = in_sync_changes.successor

    def successor(partition: PartitionImage, sets: Sets) -> PartitionValue:
        state = honest(partition, sets)
        return msgspec.structs.replace(state, partition_epoch=partition.partition_epoch)

    patch.setattr(in_sync_changes, "successor", successor)


def commits_beside_eligible_leaders(patch: Patch) -> None:
    """What a lowered minimum asks of a leader: to clear the eligible ones first."""
    patch.setattr(World, "stands_still", lambda *_: False)


def lets_everyone_who_left_stay_eligible(patch: Patch) -> None:
    honest = in_sync_changes.sets_after
    patch.setattr(
        in_sync_changes, "sets_after", lambda partition, members, _: honest(partition, members, 99)
    )
    patch.setattr(World, "stands_still", lambda *_: False)


def forgets_a_proposal_that_was_not_answered(patch: Patch) -> None:
    honest = World.change_in_sync

    def change_in_sync(world: World, leader: Any, *args: Any, **options: bool) -> None:
        honest(world, leader, *args, **options)
        leader.proposed.clear()

    patch.setattr(World, "change_in_sync", change_in_sync)


# --- moves and drains ---------------------------------------------------------------------------


def ends_a_move_before_its_copies_are_made(patch: Patch) -> None:
    honest = reassignment.finished

    def finished(partition: PartitionImage, moving: Any, *args: Any) -> PartitionValue | None:
        return honest(partition._replace(in_sync=moving.target), moving, *args)

    patch.setattr(reassignment, "finished", finished)


def leaves_the_lead_with_one_who_goes(patch: Patch) -> None:
    honest = reassignment.led_by

    def led_by(partition: PartitionImage, _: Any, sets: Sets) -> PartitionValue:
        return honest(partition, partition.leader, sets)

    patch.setattr(reassignment, "led_by", led_by)


def ends_a_move_with_the_old_replicas_too(patch: Patch) -> None:
    def steps(image: ClusterImage, *args: Any) -> reassignment.Steps | None:
        made = honest(image, *args)
        if made is None or not made.changes.deletes:
            return made
        puts = {k: v for k, v in made.changes.puts.items() if not k.startswith("topics/")}
        return made._replace(changes=replace(made.changes, puts=puts))

    honest = reassignment.steps
    patch.setattr(controller, "steps", steps)


def lets_moves_wait_for_each_other(patch: Patch) -> None:
    """Each keeps its room while it waits for more: found by the simulation."""
    honest = reassignment._has_begun
    begun = reassignment.begun

    def counted(image: ClusterImage) -> int:
        patch.setattr(reassignment, "_has_begun", honest)
        count = begun(image)
        patch.setattr(reassignment, "_has_begun", lambda *_: False)
        return count

    patch.setattr(controller, "begun", counted)


def drains_a_node_onto_itself(patch: Patch) -> None:
    def sites(image: ClusterImage) -> list[Site]:
        return [broker.site for broker in image.brokers.values()]

    patch.setattr(draining, "sites_for_new", sites)


def leaves_litter(patch: Patch) -> None:
    patch.setattr(controller, "sweep_old", lambda *_: [])


# --- where replicas go --------------------------------------------------------------------------


def places_without_looking_at_machines(patch: Patch) -> None:
    honest = placement.place

    def place(topic_id: Any, partitions: range, factor: int, sites: Any, **_: bool) -> Any:
        return honest(topic_id, partitions, factor, [Site(each.node) for each in sites])

    patch.setattr(topics, "place", place)


def drains_onto_any_machine(patch: Patch) -> None:
    honest = placement.best_site

    def best_site(candidates: Any, beside: Any, load: Any, **_: bool) -> Site | None:
        anywhere = [[Site(each.node) for each in some] for some in (candidates, beside)]
        return honest(*anywhere, load, share_machines=True)

    patch.setattr(draining, "best_site", best_site)


def drains_beside_one_whose_machine_is_unknown(patch: Patch) -> None:
    patch.setattr(draining, "safe_beside", lambda _, __, candidates: candidates)


def blind(changes: Changes, prefix: str) -> Changes:
    """The same, without a look at some keys."""
    seen = {key: n for key, n in changes.compares.items() if not key.startswith(prefix)}
    return replace(changes, compares=seen)


# Each with the first seed of which it breaks the life, and what it breaks.
BUGS: list[tuple[Plant, int, str]] = [
    (elects_whoever_lives, 1, "nobody is elected who may lack records"),
    (elects_uncleanly_unasked, 3, "nobody is elected who may lack records"),
    (elects_under_the_old_epoch, 0, "a leader has an epoch of its own"),
    (forgets_that_an_election_was_unclean, 4, "an unclean election is remembered"),
    (keeps_unclean_elections_to_itself, 4, "an unclean election is reported"),
    (decides_after_it_was_replaced, 99, "only the controller decides"),
    (decides_without_looking_at_the_state_again, 0, "partition epochs only grow"),
    (lets_a_follower_in_that_restarted, 233, "who may lead holds everything"),
    (believes_that_memory_survives, 6, "who may lead holds everything"),
    (leads_on_after_a_restart, 1, "one life of a leader per epoch"),
    (writes_states_under_one_partition_epoch, 0, "partition epochs only grow"),
    (commits_beside_eligible_leaders, 11, "who may lead holds everything"),
    (lets_everyone_who_left_stay_eligible, 2, "who may lead holds everything"),
    (forgets_a_proposal_that_was_not_answered, 195, "who may lead holds everything"),
    (ends_a_move_before_its_copies_are_made, 1, "nobody is elected who may lack records"),
    (leaves_the_lead_with_one_who_goes, 1, "a leader is in sync"),
    (ends_a_move_with_the_old_replicas_too, 1, "a move ends with its target"),
    (lets_moves_wait_for_each_other, 159, "moves come to an end"),
    (drains_a_node_onto_itself, 13, "what can move moves"),
    (leaves_litter, 6, "moves come to an end"),
    (places_without_looking_at_machines, 0, "no two replicas on one machine"),
    (drains_onto_any_machine, 4, "no two replicas on one machine"),
    (drains_beside_one_whose_machine_is_unknown, 64, "no two replicas on one machine"),
]


@pytest.mark.parametrize(("bug", "seed", "broken"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_planted_bug_is_caught(bug: Plant, seed: int, broken: str, monkeypatch: Patch) -> None:
    bug(monkeypatch)

    with pytest.raises(BrokenError, match=broken):
        Life(seed).run(STEPS)


@pytest.mark.parametrize("seed", sorted({seed for _, seed, _ in BUGS}))
def test_without_the_bug_the_same_life_goes_well(seed: int) -> None:
    Life(seed).run(STEPS)

"""Plans: even afterwards, with no more copies than that takes."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.items import Items

from waystation.cluster.balance import Plan, carried_out, plan
from waystation.cluster.draining import drain
from waystation.cluster.membership import register
from waystation.cluster.reassignment import under_way
from waystation.cluster.topics import TopicDefaults, TopicPlan, TopicSpec, create_topics
from waystation.model.ids import NodeId, TopicId, TopicPartition


def world_of(machines: list[str | None], assignment: list[list[int]]) -> Items:
    world = Items()
    for node, machine in enumerate(machines, 1):
        _, changes = register(world.image, NodeId(node), "host", 1, machine=machine)
        world.commit(changes)
    assignments = [(n, [NodeId(each) for each in some]) for n, some in enumerate(assignment)]
    spec = TopicSpec("orders", assignments=assignments)
    made = create_topics(world.image, [spec], TopicDefaults(), lambda: TopicId(UUID(int=7)))
    planned = made["orders"]
    assert isinstance(planned, TopicPlan)
    world.commit(planned.changes)
    return world


def loads(made: Plan) -> tuple[list[int], list[int]]:
    after = made.after.values()
    return [each.replicas for each in after], [each.leaders for each in after]


def test_a_new_broker_gets_its_share_and_no_more_is_copied() -> None:
    world = world_of([None] * 3, [[1, 2]] * 6)
    made = plan(world.image)

    assert loads(made) == ([4, 4, 4], [2, 2, 2])
    assert made.copies == 4
    assert [each.replicas for each in made.before.values()] == [6, 6, 0]


def test_leaders_are_evened_out_without_copying() -> None:
    world = world_of([None] * 3, [[1, 2, 3]] * 3)
    made = plan(world.image)

    assert loads(made) == ([3, 3, 3], [1, 1, 1])
    assert made.copies == 0


def test_what_is_even_stays() -> None:
    world = world_of([None] * 3, [[1, 2], [2, 3], [3, 1]])

    assert plan(world.image).moves == {}


def test_a_plan_is_carried_out_by_reassignments() -> None:
    world = world_of([None] * 2, [[1], [1]])
    made = plan(world.image)
    world.commit(*carried_out(world.image, made))

    assert [each.partition for each in under_way(world.image)] == list(made.moves)
    assert plan(world.image).moves == {}, "what is under way counts as done"


def test_a_drained_broker_gets_nothing() -> None:
    world = world_of([None] * 3, [[1]] * 6)
    world.commit(drain(world.image, NodeId(3)))

    assert loads(plan(world.image)) == ([3, 3], [3, 3])


def test_one_who_cannot_hand_over_to_another_does_it_through_a_third() -> None:
    """1 and 4 share a machine with what the other lacks: only 2 and 3 can pass it on."""
    world = world_of(["a", "b", "c", "b"], [[1, 2], [1, 2], [1, 2], [3, 4], [1, 3]])
    made = plan(world.image)

    replicas, _ = loads(made)
    assert max(replicas) - min(replicas) <= 1


assignments = st.integers(1, 3).flatmap(
    lambda factor: st.lists(
        st.permutations([1, 2, 3, 4, 5]).map(lambda nodes: nodes[:factor]), min_size=1, max_size=24
    )
)


@given(assignments)
def test_any_cluster_is_even_afterwards_with_the_fewest_copies(assignment: list[list[int]]) -> None:
    world = world_of([None] * 5, assignment)
    made = plan(world.image)

    for counts in loads(made):
        assert max(counts) - min(counts) <= 1
    before = [each.replicas for each in made.before.values()]
    low, rest = divmod(sum(before), 5)
    too_many = sum(max(0, each - low - (rest > 0)) for each in before)
    too_few = sum(max(0, low - each) for each in before)
    assert made.copies == max(too_many, too_few)


@given(assignments)
def test_no_plan_brings_replicas_onto_one_machine(assignment: list[list[int]]) -> None:
    machines: list[str | None] = ["a", "a", "b", "c", None]
    world = world_of(machines, assignment)
    made = plan(world.image)

    for name, target in made.moves.items():
        was = world.image.topic("orders").partitions[name.partition].replicas
        assert len({*target}) == len(was)
        assert shared(machines, target) <= shared(machines, was)


def shared(machines: list[str | None], replicas: tuple[NodeId, ...]) -> int:
    """How many replicas are not alone on their machine, counted once less each."""
    named = [machines[node - 1] or node for node in replicas]
    return len(named) - len({*named})


def test_names_of_moves_are_partitions() -> None:
    world = world_of([None] * 2, [[1], [1]])

    assert list(plan(world.image).moves) == [TopicPartition("orders", 0)]

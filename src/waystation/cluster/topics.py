"""How topics come, grow and go: Kafka's rules, decided on an image.

Every function decides and changes nothing; its ``Changes`` are void if what it looked at has
changed meanwhile.  To validate only is to throw them away.  Options are in ``configs.py``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.configs import check_topic_options
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import TopicImage
from waystation.cluster.placement import Assignment, check_assignment, place, sites_for_new
from waystation.cluster.values import ConfigValue, PartitionValue, TopicValue, encode
from waystation.cluster.views import (
    Understand,
    check_view,
    check_without_views,
    create_view,
    delete_view,
    is_wanted,
    orphans,
    shown_names,
)
from waystation.model.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    TopicExistsError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, NodeId, PartitionEpoch, TopicId
from waystation.model.topics import check_topic_name

PARTITIONS_MAX = 10_000
DEFAULT = -1

_FIRST_EPOCH = LeaderEpoch(0)
_FIRST_STATE = PartitionEpoch(0)


class TopicDefaults(NamedTuple):
    """What a topic gets that does not say: ``num.partitions``, ``default.replication.factor``.

    With ``share_machines`` replicas of one partition may be on one machine.
    """

    partitions: int = 1
    replication_factor: int = 1
    share_machines: bool = False


class TopicSpec(NamedTuple):
    """A topic as a client asks for it; ``assignments`` are pairs of partition and brokers."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[NodeId]]] = ()
    options: Mapping[str, str | None] = {}


class TopicPlan(NamedTuple):
    """A topic as it will be once ``changes`` are in the store."""

    name: str
    id: TopicId
    assignment: Assignment
    options: Mapping[str, str]
    changes: Changes

    @property
    def partitions(self) -> int:
        """How many partitions it will have."""
        return len(self.assignment)

    @property
    def replication_factor(self) -> int:
        """How many replicas each partition will have."""
        return len(self.assignment[0])


def create_topics(
    image: ClusterImage,
    specs: Sequence[TopicSpec],
    defaults: TopicDefaults,
    new_id: Callable[[], TopicId],
    understand: Understand = str,
) -> dict[str, TopicPlan | WaystationError]:
    """For each name asked for, what to do or why not; one bad topic spoils no other.

    ``understand`` reads the expressions of views.
    """
    taken = {_unified(name): name for name in shown_names(image)}
    outcomes: dict[str, TopicPlan | WaystationError] = {}
    for spec in specs:
        if spec.name in outcomes:
            outcomes[spec.name] = InvalidRequestError(f"topic {spec.name!r} is named twice")
            continue
        try:
            _check_name(spec.name, image, taken)
            if is_wanted(spec.options):
                outcomes[spec.name] = _plan_view(image, spec, new_id(), understand)
            else:
                outcomes[spec.name] = _plan(image, spec, defaults, new_id())
            taken[_unified(spec.name)] = spec.name
        except WaystationError as refusal:
            outcomes[spec.name] = refusal
    return outcomes


def delete(image: ClusterImage, name: str) -> Changes:
    """Let the topic or view of that name exist no more."""
    if name in image.views:
        return delete_view(image.views[name])
    topic = image.topic(name)
    check_without_views(image, topic)
    return delete_topic(topic)


def delete_topic(topic: TopicImage) -> Changes:
    """Let the topic exist no more; its partitions' states go behind it."""
    return Changes(
        compares={keys.topic(topic.name): topic.version},
        deletes=[keys.topic(topic.name), keys.topic_config(topic.name)],
        after=[keys.partition(topic.id, number) for number in range(len(topic.partitions))],
    )


def add_partitions(
    image: ClusterImage,
    name: str,
    count: int,
    assignments: Sequence[Sequence[NodeId]] | None = None,
    *,
    share_machines: bool = False,
) -> Changes:
    """Let the topic have ``count`` partitions; the new ones placed, or assigned as told."""
    topic = image.topic(name)
    now = len(topic.partitions)
    if count <= now:
        raise InvalidPartitionsError(
            f"topic {name!r} has {now} partitions already: {count} would not be more"
        )
    _check_count(count)
    moving = image.reassignment(topic.id, 0)
    factor = len(moving.target if moving else topic.partitions[0].replicas)
    if assignments is None:
        sites = sites_for_new(image)
        new = range(now, count)
        added = place(topic.id, new, factor, sites, share_machines=share_machines)
    elif len(assignments) != count - now:
        raise InvalidReplicaAssignmentError(
            f"{count - now} partitions are to be added, {len(assignments)} are assigned"
        )
    else:
        added = check_assignment(assignments, image.brokers, factor)
    value = TopicValue(id=topic.id, replicas=topic.assignment + added)
    left_over = image.strays.get(topic.id, {})
    states = _first_states(topic.id, added, now)
    versions = {
        keys.partition(topic.id, number): left_over[number].version if number in left_over else 0
        for number in range(now, count)
    }
    return Changes(
        compares={**versions, keys.topic(name): topic.version},
        before=states,
        puts={keys.topic(name): encode(value)},
    )


def sweep(image: ClusterImage) -> Changes:
    """Delete what a crash left behind: states, options and moves of topics that do not exist."""
    return Changes(after=list(_left_over(image)))


def sweep_old(image: ClusterImage, earlier: ClusterImage) -> list[Changes]:
    """Delete what was left over in an ``earlier`` image too, and is still the same.

    Where there are several brokers, another one may just be making a topic, the states of which
    go ahead of it.
    """
    before = _left_over(earlier)
    return [
        Changes(compares={key: version}, deletes=[key])
        for key, version in _left_over(image).items()
        if before.get(key) == version
    ]


def _left_over(image: ClusterImage) -> dict[str, int]:
    states = {
        keys.partition(topic_id, number): state.version
        for topic_id, some in image.strays.items()
        for number, state in some.items()
    }
    options = {
        keys.topic_config(name): config.version
        for name, config in image.topic_configs.items()
        if name not in image.topics
    }
    moves = {
        keys.reassignment(topic_id, number): moving.version
        for topic_id, some in image.reassignments.items()
        if topic_id not in image.topics_by_id
        for number, moving in some.items()
    }
    views = {keys.view(view.name): view.version for view in orphans(image)}
    return {**states, **options, **moves, **views}


def _plan(
    image: ClusterImage, spec: TopicSpec, defaults: TopicDefaults, topic_id: TopicId
) -> TopicPlan:
    if spec.assignments:
        assignment = _assigned(spec, image)
    else:
        partitions, factor = _counts(spec, defaults)
        assignment = place(
            topic_id,
            range(partitions),
            factor,
            sites_for_new(image),
            share_machines=defaults.share_machines,
        )
    options = check_topic_options(spec.options)
    topic_key, config_key = keys.topic(spec.name), keys.topic_config(spec.name)
    puts = {topic_key: encode(TopicValue(id=topic_id, replicas=assignment))}
    if options:
        puts[config_key] = encode(ConfigValue(options=options))
    changes = Changes(
        compares={topic_key: ABSENT, keys.view(spec.name): ABSENT},
        before=_first_states(topic_id, assignment, 0),
        puts=puts,
        # Options that a crash left behind are not this topic's.
        deletes=[config_key] if not options and spec.name in image.topic_configs else (),
    )
    return TopicPlan(spec.name, topic_id, assignment, options, changes)


def _plan_view(
    image: ClusterImage, spec: TopicSpec, view_id: TopicId, understand: Understand
) -> TopicPlan:
    wanted = check_view(image, spec.options, understand)
    assignment = wanted.base.assignment
    asked = (spec.partitions, spec.replication_factor)
    there = (len(assignment), len(assignment[0]))
    if spec.assignments or any(
        n not in (DEFAULT, own) for n, own in zip(asked, there, strict=True)
    ):
        raise InvalidRequestError(
            f"a view has the partitions of its topic; {wanted.base.name} has {there[0]}, with "
            f"{there[1]} replicas: ask for these, or for -1 of both"
        )
    changes = create_view(spec.name, view_id, wanted)
    return TopicPlan(spec.name, view_id, assignment, wanted.options, changes)


def _first_states(topic_id: TopicId, assignment: Assignment, first: int) -> dict[str, bytes]:
    """A new partition is led by its preferred leader, with every replica in sync: all empty."""
    return {
        keys.partition(topic_id, number): encode(
            PartitionValue(
                leader=replicas[0],
                leader_epoch=_FIRST_EPOCH,
                in_sync=replicas,
                partition_epoch=_FIRST_STATE,
            )
        )
        for number, replicas in enumerate(assignment, first)
    }


def _check_name(name: str, image: ClusterImage, taken: Mapping[str, str]) -> None:
    check_topic_name(name)
    if name in image.views:
        raise TopicExistsError(f"{name!r} exists already: a view of {image.views[name].on}")
    if name in image.topics:
        raise TopicExistsError(f"topic {name!r} exists already")
    look_alike = taken.get(_unified(name))
    if look_alike is not None:
        raise InvalidTopicError(
            f"topic {name!r} collides with {look_alike!r}: '.' and '_' count as one in metrics"
        )


def _unified(name: str) -> str:
    return name.replace(".", "_")


def _counts(spec: TopicSpec, defaults: TopicDefaults) -> tuple[int, int]:
    partitions, factor = spec.partitions, spec.replication_factor
    if partitions == DEFAULT:
        partitions = defaults.partitions
    if factor == DEFAULT:
        factor = defaults.replication_factor
    if factor < 1:
        raise InvalidReplicationFactorError(
            f"replication factor {factor}: must be at least 1, or -1 for the default"
        )
    _check_count(partitions)
    return partitions, factor


def _check_count(partitions: int) -> None:
    if partitions < 1:
        raise InvalidPartitionsError(
            f"{partitions} partitions: must be at least 1, or -1 for the default"
        )
    if partitions > PARTITIONS_MAX:
        raise PolicyViolationError(
            f"{partitions} partitions: a topic may have {PARTITIONS_MAX} at most"
        )


def _assigned(spec: TopicSpec, image: ClusterImage) -> Assignment:
    if (spec.partitions, spec.replication_factor) != (DEFAULT, DEFAULT):
        raise InvalidRequestError(
            "with a manual assignment, partitions and replication factor must both be -1"
        )
    _check_count(len(spec.assignments))
    by_number = dict(spec.assignments)
    if len(by_number) < len(spec.assignments) or sorted(by_number) != list(range(len(by_number))):
        raise InvalidReplicaAssignmentError(
            f"partitions must be assigned once each, from 0 to {len(spec.assignments) - 1}"
        )
    ordered = (by_number[number] for number in range(len(by_number)))
    return check_assignment(ordered, image.brokers)

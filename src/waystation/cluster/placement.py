"""Which brokers hold which partition.

The same topic id and the same brokers always give the same placement: the start is drawn from
the id, not from chance, so that small topics do not all begin on the first broker.

1. Replicas of one partition are on different brokers, and on different machines unless they
   may share one; on as many racks as there are, or as there are replicas.
2. Preferred leaders of a topic differ by at most one partition between any two brokers.
3. Followers of one broker's partitions are spread over all the others, so that the load of a
   dead leader does not fall on a single one.
4. Partitions added later continue the round where it stopped.

A manual assignment is checked here too, and obeyed as it is: who writes one may put replicas
on one machine.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import Site
from waystation.model.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from waystation.model.ids import NodeId, TopicId

Assignment = tuple[tuple[NodeId, ...], ...]

_DEFAULT_FACTOR = 3


def listed(nodes: Iterable[NodeId]) -> str:
    """Brokers as an error names them."""
    return ", ".join(map(str, sorted(set(nodes))))


def sites_for_new(image: ClusterImage) -> list[Site]:
    """Where new replicas may go: on brokers that neither want to stop nor are being drained."""
    return [
        broker.site
        for node, broker in image.brokers.items()
        if not image.is_leaving(node) and node not in image.drains
    ]


def default_factor(sites: Collection[Site], *, share_machines: bool = False) -> int:
    """How many replicas a topic gets that does not say: three, where three can be apart."""
    places = len(sites) if share_machines else len({machine_of(site) for site in sites})
    return _DEFAULT_FACTOR if places >= _DEFAULT_FACTOR else 1


def place(
    topic_id: TopicId,
    partitions: range,
    factor: int,
    sites: Iterable[Site],
    *,
    share_machines: bool = False,
) -> Assignment:
    """The replicas of each partition in ``partitions``, the preferred leader first."""
    ring = _alternating(sites)
    machines = len({machine_of(site) for site in ring})
    if factor > len(ring):
        raise InvalidReplicationFactorError(
            f"replication factor {factor} is larger than the number of brokers: "
            f"{len(ring)} registered. Remedy: ask for {len(ring)} or less, or start more brokers"
        )
    if factor > machines and not share_machines:
        raise InvalidReplicationFactorError(
            f"replication factor {factor} is larger than the number of machines: {len(ring)} "
            f"brokers run on {machines}, and two replicas on one machine would die together. "
            f"Remedy: ask for {machines} or less, start brokers elsewhere, or set "
            "replicas.share.machine=true"
        )
    start = topic_id.int % len(ring)
    return tuple(_replicas(ring, start + number, factor) for number in partitions)


def machine_of(site: Site) -> str | NodeId:
    """What dies with the broker; one that names no machine has one to itself."""
    return site.node if site.machine is None else site.machine


def best_site(
    candidates: Iterable[Site],
    beside: Collection[Site],
    load: Mapping[NodeId, int],
    *,
    share_machines: bool,
) -> Site | None:
    """Where one more replica goes beside others: apart from them, then where least is."""
    others = list(beside)
    taken = {site.node for site in others}
    free = [
        (_nearness(site, others), load.get(site.node, 0), site.node, site)
        for site in candidates
        if site.node not in taken
    ]
    if not share_machines:
        free = [each for each in free if not each[0][0]]
    return min(free)[-1] if free else None


def _alternating(sites: Iterable[Site]) -> list[Site]:
    """By number, but every next one on another rack for as long as there is another."""
    by_rack: dict[str, list[Site]] = {}
    for site in sorted(sites, key=lambda site: site.node):
        by_rack.setdefault(site.rack or "", []).append(site)
    racks = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, racks), default=0)
    return [rack[turn] for turn in range(longest) for rack in racks if turn < len(rack)]


def _replicas(ring: Sequence[Site], turn: int, factor: int) -> tuple[NodeId, ...]:
    """The leader takes its turn; followers come after it, one further with every round.

    Of those that follow, each time the first is taken that stands furthest from those taken.
    """
    others = len(ring) - 1
    leader, rounds = turn % len(ring), turn // len(ring)
    steps = (1 + (rounds + nth) % others for nth in range(others))
    following = [ring[(leader + step) % len(ring)] for step in steps]
    taken = [ring[leader]]
    while len(taken) < factor:
        furthest = min(following, key=lambda site: _nearness(site, taken))
        following.remove(furthest)
        taken.append(furthest)
    return tuple(site.node for site in taken)


def _nearness(site: Site, taken: Sequence[Site]) -> tuple[int, int]:
    machine = machine_of(site)
    same_machine = sum(machine_of(each) == machine for each in taken)
    return same_machine, sum(each.rack == site.rack for each in taken)


def check_assignment(
    replicas: Iterable[Sequence[NodeId]], brokers: Collection[NodeId], factor: int | None = None
) -> Assignment:
    """The assignment, if every partition has ``factor`` different brokers that are there.

    Without a ``factor`` the first partition sets it.
    """
    checked = tuple(tuple(each) for each in replicas)
    factor = len(checked[0]) if factor is None and checked else factor
    for each in checked:
        if not each:
            raise InvalidReplicaAssignmentError("a partition is assigned to no broker")
        if len(set(each)) < len(each):
            raise InvalidReplicaAssignmentError(f"one partition names a broker twice: {each}")
        unknown = [node for node in each if node not in brokers]
        if unknown:
            raise InvalidReplicaAssignmentError(
                f"broker {unknown[0]} is not registered; there are {listed(brokers)}"
            )
        if len(each) != factor:
            raise InvalidReplicaAssignmentError(
                f"a partition has {len(each)} replicas where the others have {factor}"
            )
    return checked

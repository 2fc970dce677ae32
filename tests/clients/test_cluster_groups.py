"""Groups of real clients whose coordinator is killed: members stay, and how far they are too."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from tests.apis.clustering import ThreadedCluster
from tests.support.group_readers import (
    AiokafkaReader,
    ConfluentReader,
    KafkaPythonReader,
    Ledger,
    OwnReader,
    Reader,
    Topic,
    until,
)
from waystation.broker.coordinators import OFFSETS_TOPIC

PARTITIONS = 6
# One partition: whoever leads it coordinates all groups.
OPTIONS = {"offsets.topic.num.partitions": "1", "group.consumer.heartbeat.interval.ms": "100"}


class Kind(NamedTuple):
    """A client, and how its members are set up."""

    reader: type[Reader]
    options: Mapping[str, Any]


KINDS = {
    "confluent": Kind(ConfluentReader, {"heartbeat.interval.ms": "100"}),
    "confluent-server-side": Kind(ConfluentReader, {"group.protocol": "consumer"}),
    "aiokafka": Kind(AiokafkaReader, {}),
    "kafka-python": Kind(KafkaPythonReader, {}),
    "ours": Kind(OwnReader, {"group_protocol": "classic"}),
    "ours-server-side": Kind(OwnReader, {"group_protocol": "consumer"}),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    with ThreadedCluster(tmp_path_factory.mktemp("cluster"), options=OPTIONS) as running:
        yield running


class Group:
    """Two members of one kind, who join one after the other.

    librdkafka of the server-side protocol may say that it owns nothing while it is being assigned
    something; who joins at that moment gets it, too.
    """

    def __init__(self, kind: str, cluster: ThreadedCluster, topic: str) -> None:
        self.ledger = Ledger()
        self.members: list[Reader] = []
        self._kind, self._bootstrap, self._topic = kind, cluster.bootstrap, topic

    def join(self, name: str, ledger: Ledger | None = None) -> Reader:
        reader, options = KINDS[self._kind]
        group = f"{self._kind}-of-{self._topic}"
        member = reader(ledger or self.ledger, name, self._bootstrap, group, self._topic, options)
        member.start()
        self.members.append(member)
        return member

    def has_read(self, count: int) -> bool:
        return len(self.ledger.values()) == count

    def __str__(self) -> str:
        problems = [one.problems for one in self.members]
        return f"{self._kind}: {len(self.ledger.values())} read, {self.ledger.owned}, {problems}"


def until_all(groups: list[Group], true: Callable[[Group], bool]) -> None:
    until(lambda: all(map(true, groups)), lambda: "; ".join(map(str, groups)))


def test_members_and_offsets_survive_the_death_of_their_coordinator(
    cluster: ThreadedCluster, topic: str
) -> None:
    written = Topic(cluster.bootstrap, topic, PARTITIONS)
    groups = [Group(kind, cluster, topic) for kind in KINDS]
    written.write(30)
    for name, shares in (("a", [6]), ("b", [3, 3])):
        for group in groups:
            group.join(name)
        until_all(groups, lambda group, shares=shares: group.ledger.is_shared(*shares))
        written.write(30)
        until_all(groups, lambda group: group.has_read(written.written))
    revoked = [sum(group.ledger.revoked.values()) for group in groups]

    coordinator = cluster.partition(OFFSETS_TOPIC).leader
    assert coordinator is not None
    cluster.wait_for(cluster.local.kill(coordinator))
    written.write(60)
    until_all(groups, lambda group: group.has_read(written.written))

    for group, before in zip(groups, revoked, strict=True):
        assert sum(group.ledger.revoked.values()) == before, f"members were lost: {group}"
        assert not group.ledger.conflicts, f"owned twice: {group}"
        assert set(group.ledger.values().values()) == {1}, f"read twice: {group}"
        for member in group.members:
            member.close()
    cluster.start(coordinator)
    written.write(6)
    for group in groups:
        later = Ledger()
        successor = group.join("c", later)
        until(lambda later=later: len(later.rows) >= 6, lambda later=later: later.rows)
        successor.close()

        assert len(later.values()) == len(later.rows) == 6, f"went on where nobody was: {group}"

"""A replica is made of whatever its leader has, wherever that begins."""

from pathlib import Path

import pytest

from waystation import Admin, Producer
from waystation.model.ids import TopicPartition
from waystation.testing.cluster import LocalCluster


@pytest.mark.parametrize("start", [3, 7])
async def test_a_new_replica_begins_in_the_midst_of_a_batch_as_its_leader_does(
    tmp_path: Path, start: int
) -> None:
    where = TopicPartition("orders", 0)
    async with LocalCluster(tmp_path, 2) as cluster, Admin(cluster.bootstrap) as admin:
        one, fresh = cluster.ids
        await admin.create_topic("orders", assignments={0: [one]})
        async with Producer(cluster.bootstrap, linger_ms=50) as producer:
            for _ in range(2):
                for number in range(5):
                    producer.submit("orders", b"%d" % number)
                await producer.flush()
        await admin.delete_records({where: start})

        await admin.alter_reassignments({where: [fresh]})
        await cluster.until(lambda: cluster.leader("orders") == fresh, what="the new one leads")
        log = cluster.nodes[fresh].broker.replicas.get("orders", 0).log
        assert (log.log_start, log.log_end) == (start, 10)

"""``audit`` on real topics and real lakes: clean ones, and ones with planted faults."""

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StructField, StructType

from tests.support.soak import count
from waystation import Admin, Producer
from waystation.pipelines.archive import archive
from waystation.pipelines.audit import command
from waystation.pipelines.job import source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(25)

TOPIC = "audited"
PARTITIONS = 3
RECORDS = 60
"""Per partition."""

Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


class Place:
    """A topic that was archived, and copies of its lake to do harm to."""

    def __init__(self, spark: "SparkSession", bootstrap: str, folder: Path) -> None:
        self.spark, self.bootstrap, self.folder = spark, bootstrap, folder
        self.lake = folder / "lake"

    def copy(self, name: str) -> Path:
        for end in ("", "-quarantine"):
            shutil.copytree(f"{self.lake}{end}", f"{self.folder / name}{end}")
        return self.folder / name

    def audit(self, lake: Path, *options: str, topics: str = TOPIC) -> tuple[int, dict[str, Any]]:
        """The exit code of the command, and what it printed for scripts."""
        ended = run(
            *("--bootstrap", self.bootstrap, "--topics", topics, "--lake", lake, "--json"), *options
        )
        assert ended.exit_code in (0, 1), ended.output
        return ended.exit_code, json.loads(ended.stdout)


def run(*arguments: object) -> Any:
    """The command, in this process: it finds the session that the tests have."""
    return CliRunner().invoke(command, [str(one) for one in arguments])


async def produce(bootstrap: str, topic: str, each: int, partitions: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(each):
            for partition in range(partitions):
                # One in ten is no JSON, and goes to the quarantine.
                value = b"nonsense" if number % 10 == 9 else b'{"n": %d}' % number
                headers = [("h", b"1")] if number % 3 == 0 else []
                key = None if number % 4 == 0 else b"k%d" % number
                producer.submit(topic, value, key=key, headers=headers, partition=partition)
        await producer.flush()


async def create(bootstrap: str, topic: str, partitions: int) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions)


@pytest.fixture(scope="module")
def place(spark: "SparkSession", bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    asyncio.run(create(bootstrap, TOPIC, PARTITIONS))
    asyncio.run(produce(bootstrap, TOPIC, RECORDS, PARTITIONS))
    found = Place(spark, bootstrap, tmp_path_factory.mktemp("audit"))
    query = archive(
        spark,
        bootstrap=bootstrap,
        topics=TOPIC,
        lake=found.lake,
        available_now=True,
        value_format="json",
        schema=StructType([StructField("n", LongType())]),
        source_options={"maxOffsetsPerTrigger": RECORDS * PARTITIONS // 2},
    )
    assert query.awaitTermination(100)
    return found


# --- harm -------------------------------------------------------------------------------------


def lose(lake: Path, partition: int, *offsets: int) -> None:
    for offset in offsets:
        rewrite(
            lake,
            partition,
            offset,
            lambda rows, offset=offset: [  # type: ignore[misc]  # bound here
                row for row in rows if (row["partition"], row["offset"]) != (partition, offset)
            ],
        )


def double(lake: Path, partition: int, offset: int) -> None:
    for table in (str(lake), f"{lake}-quarantine"):
        rows = pa.table(
            _query(table, f"SELECT * FROM t WHERE partition = {partition} AND offset = {offset}")
        )
        if rows.num_rows:
            write_deltalake(table, rows, mode="append")


def _query(table: str, text: str) -> Any:
    from deltalake import QueryBuilder

    return QueryBuilder().register("t", DeltaTable(table)).execute(text)


def rewrite(lake: Path, partition: int, offset: int, change: Change) -> None:
    """Change the file that holds an offset behind the back of the table's log."""
    for table in (str(lake), f"{lake}-quarantine"):
        for uri in DeltaTable(table).file_uris():
            path = uri.removeprefix("file://")
            rows = pq.ParquetFile(path).read()
            found = rows.to_pylist()
            if any((one["partition"], one["offset"]) == (partition, offset) for one in found):
                pq.write_table(pa.Table.from_pylist(change(found), schema=rows.schema), path)
                return
    raise AssertionError(f"no file holds {partition}, {offset}")


def swap(lake: Path, partition: int, offset: int) -> int:
    """Let a row and the one after it in its file change places; the offset that fell back."""
    fallen = []

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        at = next(
            at
            for at, row in enumerate(rows)
            if (row["partition"], row["offset"]) == (partition, offset)
        )
        other = at + 1 if at + 1 < len(rows) and rows[at + 1]["partition"] == partition else at - 1
        rows[at], rows[other] = rows[other], rows[at]
        fallen.append(min(rows[at]["offset"], rows[other]["offset"]))
        return rows

    rewrite(lake, partition, offset, change)
    return fallen[0]


def alter(lake: Path, partition: int, at: int, **values: object) -> None:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**row, **values} if (row["partition"], row["offset"]) == (partition, at) else row
            for row in rows
        ]

    rewrite(lake, partition, at, change)


def per_partition(told: dict[str, Any], name: str) -> list[int]:
    return [one[name] for one in told["partitions"]]


def findings(told: dict[str, Any], *verdicts: str) -> set[tuple[str, int, int, int]]:
    """Verdict, partition, first and last offset."""
    return {
        (one["verdict"], one["partition"], one["first"], one["last"])
        for one in told["findings"]
        if not verdicts or one["verdict"] in verdicts
    }


# --- what is right, and what is wrong ----------------------------------------------------------


def test_a_lake_and_its_quarantine_hold_the_log_up_to_where_they_are(
    place: Place, topic: str
) -> None:
    asyncio.run(create(place.bootstrap, topic, 1))
    asyncio.run(produce(place.bootstrap, topic, 5, 1))
    code, told = place.audit(place.lake, topics=f"{TOPIC},{topic}")

    assert code == 0, told
    assert told["clean"]
    assert told["matched"] == RECORDS * PARTITIONS
    assert told["quarantined"] == RECORDS // 10 * PARTITIONS
    assert told["pending"] == 5
    assert told["findings"] == told["remarks"] == []


def test_each_planted_fault_is_found_and_nothing_else(place: Place) -> None:
    lake = place.copy("harmed")
    lose(lake, 0, 0, 7, 8, 9, RECORDS - 1)  # the last two are of the quarantine
    alter(lake, 0, RECORDS - 2, offset=RECORDS + 1_000)  # the last of the table
    double(lake, 1, 3)
    double(lake, 1, 19)  # in the quarantine
    fallen = swap(lake, 1, 41)
    alter(lake, 2, 5, key=b"somebody else")
    alter(lake, 2, 29, value=b"another nonsense")  # in the quarantine, where values are compared
    alter(lake, 2, 3, headers=[{"key": "h", "value": b"2"}])
    alter(lake, 2, 8, key=b"")
    code, told = place.audit(lake, "--complete", "--examples", "50")

    assert code == 1
    assert per_partition(told, "lost") == [6, 0, 0]
    assert per_partition(told, "extra") == [1, 0, 0]
    assert per_partition(told, "doubled") == [0, 2, 0]
    assert per_partition(told, "reordered") == [0, 1, 0]
    assert per_partition(told, "different") == [0, 0, 4]
    assert findings(told) == {
        ("lost", 0, 0, 0),
        ("lost", 0, 7, 9),
        ("lost", 0, RECORDS - 2, RECORDS - 1),
        ("extra", 0, RECORDS + 1_000, RECORDS + 1_000),
        ("doubled", 1, 3, 3),
        ("doubled", 1, 19, 19),
        ("reordered", 1, fallen, fallen),
        ("different", 2, 3, 3),
        ("different", 2, 5, 5),
        ("different", 2, 8, 8),
        ("different", 2, 29, 29),
    }


def test_faults_planted_anywhere_are_found(place: Place) -> None:
    for seed in range(count(1, 20)):
        chance = random.Random(seed)
        lake = place.copy(f"random-{seed}")
        lost, doubled, swapped = chance.sample(range(PARTITIONS), 3)
        gone = sorted(chance.sample(range(RECORDS), chance.randint(1, 5)))
        lose(lake, lost, *gone)
        twice = chance.randrange(RECORDS)
        double(lake, doubled, twice)
        fallen = swap(lake, swapped, chance.randrange(RECORDS))
        code, told = place.audit(lake, "--offsets-only", "--complete")

        assert code == 1, seed
        assert [told[name] for name in ("lost", "doubled", "reordered")] == [len(gone), 1, 1], seed
        assert findings(told, "doubled", "reordered") == {
            ("doubled", doubled, twice, twice),
            ("reordered", swapped, fallen, fallen),
        }, seed
        missed = {
            at for _, _, first, last in findings(told, "lost") for at in range(first, last + 1)
        }
        assert missed == set(gone), seed


def test_rows_that_log_and_lake_both_lost_are_missed_by_the_commits(place: Place) -> None:
    asyncio.run(truncate(place.bootstrap, TOPIC, 10))
    lake = place.copy("old")
    lose(lake, 0, 4)
    code, told = place.audit(lake, "--offsets-only")

    assert code == 1
    assert (told["matched"], told["beyond_retention"]) == (RECORDS * PARTITIONS - 10, 9)
    assert told["findings"] == []
    (remark,) = told["remarks"]
    assert f"{TOPIC}-0" in remark
    assert "recorded 54 rows from offset 0 to 58, and there are 53" in remark


async def truncate(bootstrap: str, topic: str, before: int) -> None:
    async with Admin(bootstrap) as admin:
        await admin.delete_records({(topic, 0): before})


@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_tables_of_every_kind_are_compared(place: Place, topic: str, kind: str) -> None:
    lake = place.folder / kind
    name = topic.strip("-")
    asyncio.run(create(place.bootstrap, name, 1))
    asyncio.run(produce(place.bootstrap, name, 20, 1))
    log = source(
        place.spark,
        {"bootstrap": place.bootstrap, "topics": (name,)},
        stream=False,
        includeHeaders=True,
    )
    writer = log.coalesce(1).write.format("waystation.table").mode("append")
    writer.option("format", kind).option("partitionBy", "topic").save(str(lake))
    code, told = place.audit(lake, "--complete", topics=name)

    assert code == 0, told
    assert told["matched"] == 20


# --- what cannot be compared ------------------------------------------------------------------


def test_what_cannot_be_compared_is_neither_clean_nor_different(
    place: Place, tmp_path: Path
) -> None:
    write_deltalake(tmp_path / "other", pa.table({"x": [1]}))
    at = ("--bootstrap", place.bootstrap)
    ended = {
        "there is no table here": run(*at, "--topics", TOPIC, "--lake", tmp_path / "nowhere"),
        "has no column topic": run(*at, "--topics", TOPIC, "--lake", tmp_path / "other"),
        "no-such-topic": run(*at, "--topics", "no-such-topic", "--lake", place.lake),
        "no topic's name matches": run(*at, "--topic-pattern", "no-such.*", "--lake", place.lake),
    }

    assert {one.exit_code for one in ended.values()} == {2}
    for said, one in ended.items():
        assert said in one.output

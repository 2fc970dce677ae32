"""What commits recorded, what files hold, and what a report makes of it."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.model.ids import TopicPartition
from waystation.pipelines.audit_lake import Lake, Recorded, _walk, reached, recorded
from waystation.pipelines.audit_report import (
    DIFFERENCES,
    AuditReport,
    Finding,
    PartitionAudit,
    Verdict,
    collected,
)
from waystation.pipelines.report import text_table
from waystation.spark.table_ranges import CommittedRanges, OffsetRange

WHERE = TopicPartition("orders", 0)


def commit(version: int, first: int, last: int, count: int) -> CommittedRanges:
    return CommittedRanges(version, "sink", version, 0, {WHERE: OffsetRange(first, last, count)})


def test_commits_that_follow_each_other_are_added_up() -> None:
    told = recorded([commit(1, 0, 9, 10), commit(2, 10, 29, 15)], ["orders"])

    assert told == {WHERE: Recorded(0, 29, 25, 0)}


def test_a_commit_that_steps_back_is_noticed() -> None:
    told = recorded([commit(1, 0, 9, 10), commit(2, 5, 14, 10), commit(3, 15, 20, 6)], ["orders"])

    assert told[WHERE].out_of_order == 1


def test_commits_of_other_topics_do_not_count() -> None:
    assert recorded([commit(1, 0, 9, 10)], ["payments"]) == {}


def lake(*commits: CommittedRanges) -> Lake:
    return Lake("lake", "delta", 9, {}, commits)


def test_the_quarantine_counts_as_far_as_the_table_has_come() -> None:
    table = lake(commit(1, 0, 8, 9), commit(2, 10, 18, 9))
    quarantine = lake(commit(1, 9, 9, 1), commit(2, 19, 19, 1), commit(3, 29, 29, 1))

    assert recorded(reached(table, quarantine), ["orders"])[WHERE].last == 19
    assert recorded(reached(table, None), ["orders"])[WHERE].last == 18
    assert reached(lake(), quarantine) == []


# --- files ------------------------------------------------------------------------------------


def rows(file: str, *offsets: int, partition: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["orders"] * len(offsets), pa.string()),
            pa.array([partition] * len(offsets), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([f"topic=orders/ws-{file}.parquet"] * len(offsets), pa.string()),
        ],
        names=["topic", "partition", "offset", "_file"],
    )


def walked(*batches: pa.RecordBatch) -> list[dict[str, int]]:
    spans = {WHERE: (0, 100)}
    return [row for batch in _walk(iter(batches), spans) for row in batch.to_pylist()]


def test_ascending_files_are_in_order_whatever_order_the_files_come_in() -> None:
    told = walked(rows("b", 10, 11), rows("a", 0, 1, 2), rows("b", 13))

    assert [one["reordered"] for one in told] == [0, 0]
    assert sum(one["rows"] for one in told) == 6


def test_a_swap_is_found_within_a_batch_and_across_batches() -> None:
    (within,) = walked(rows("a", 0, 2, 1, 3))
    (across,) = walked(rows("a", 0, 5), rows("a", 4, 6))

    assert (within["reordered"], within["first_reordered"], within["last_reordered"]) == (1, 1, 1)
    assert (across["reordered"], across["first_reordered"]) == (1, 4)


def test_partitions_of_one_file_have_orders_of_their_own() -> None:
    mixed = pa.Table.from_batches([rows("a", 5), rows("a", 0, partition=1), rows("a", 6)])

    told = walked(mixed.combine_chunks().to_batches()[0])
    assert [one["reordered"] for one in told] == [0, 0]


def test_files_that_somebody_else_wrote_need_no_order() -> None:
    joined = rows("a", 3, 2, 1)
    joined = joined.set_column(3, "_file", pa.array(["part-00000.parquet"] * 3))

    (told,) = walked(joined)
    assert (told["reordered"], told["rows"], told["last"]) == (0, 3, 3)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 5))
def test_whoever_stands_behind_a_later_one_is_counted(offsets: list[int], cut: int) -> None:
    parts = [offsets[at : at + cut] for at in range(0, len(offsets), cut)]
    (told,) = walked(*(rows("a", *part) for part in parts))

    behind = [one for at, one in enumerate(offsets) if any(b > one for b in offsets[:at])]
    assert told["reordered"] == len(behind)
    assert told["last"] == max(offsets)
    assert told["first_reordered"] == min(behind, default=-1)
    assert told["last_reordered"] == max(behind, default=-1)


# --- the report -------------------------------------------------------------------------------


def report(*counts: tuple[Verdict, int], remarks: tuple[str, ...] = ()) -> AuditReport:
    known = {WHERE: PartitionAudit("orders", 0, 0, 10, 8, quarantined=1)}
    told = [("orders", 0, verdict, count) for verdict, count in counts]
    return collected("lake", known, told, [Finding(Verdict.LOST, "orders", 0, 3, 4, 2)], remarks)


def test_what_waits_and_what_the_log_forgot_is_no_difference() -> None:
    found = report((Verdict.MATCHED, 5), (Verdict.PENDING, 2), (Verdict.BEYOND_RETENTION, 3))

    assert found.clean
    assert found.sentence() == (
        "clean: 5 records match; 2 pending, 3 beyond retention, 1 quarantined"
    )


@pytest.mark.parametrize("verdict", DIFFERENCES)
def test_each_difference_spoils_the_report(verdict: Verdict) -> None:
    found = report((Verdict.MATCHED, 5), (verdict, 1))

    assert not found.clean
    assert found.sentence() == f"different: 1 {verdict}"


def test_a_remark_spoils_the_report() -> None:
    assert not report((Verdict.MATCHED, 5), remarks=("orders-0: commits step back",)).clean


def test_a_partition_that_only_the_lake_has_is_in_the_report() -> None:
    found = collected("lake", {}, [("orders", 7, Verdict.EXTRA, 3)])

    assert found.partitions == (PartitionAudit("orders", 7, 0, 0, 0, extra=3),)


def test_a_report_is_a_table_and_a_document() -> None:
    found = report((Verdict.LOST, 2))

    assert "LOST" in text_table(found.table())
    told = json.loads(json.dumps(found.as_dict()))
    assert told["lost"] == 2
    assert told["findings"][0]["verdict"] == "lost"
    assert str(found.findings[0]) == "orders-0 lost: 3..4 (2)"

"""Which offsets of which topics a table holds, as its commits recorded them.

Only what the log of the table still knows: Delta forgets entries after its log retention (30
days by default), Iceberg after its snapshots expire.  The rows themselves keep their offsets.
"""

from collections.abc import Mapping

from waystation.spark.table_kinds import existing_kind, kind_called
from waystation.spark.table_location import Location
from waystation.spark.table_ranges import CommittedRanges

__all__ = ["CommittedRanges", "recorded_ranges"]


def recorded_ranges(
    path: str, storage_options: Mapping[str, str] | None = None
) -> list[CommittedRanges]:
    """The commits that said where their rows come from, oldest first."""
    location = Location.of(path, tuple(sorted((storage_options or {}).items())))
    return kind_called(existing_kind(location)).open_table(location).history()

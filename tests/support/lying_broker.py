"""``waystation serve`` with a bug, to see who notices; the variable ``WAYSTATION_BUG`` names it."""

import os
from collections.abc import Callable

from waystation.cli.main import main
from waystation.model.offsets import Millis
from waystation.partition.partition import Partition
from waystation.records.control import Marker
from waystation.storage.log import Log
from waystation.storage.surroundings import Appended


def names_no_aborted_transactions() -> None:
    Log.aborted = lambda *_: []  # type: ignore[method-assign]


def shows_what_is_open() -> None:
    Log.last_stable = lambda _, high_watermark: high_watermark  # type: ignore[method-assign]


def aborts_in_one_partition_what_it_commits_in_others() -> None:
    honest = Partition.append_marker

    def append_marker(partition: Partition, marker: Marker, now: Millis) -> Appended:
        committed = marker.committed and partition.name.partition != 0
        return honest(partition, marker._replace(committed=committed), now)

    Partition.append_marker = append_marker  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        names_no_aborted_transactions,
        shows_what_is_open,
        aborts_in_one_partition_what_it_commits_in_others,
    )
}

if __name__ == "__main__":
    BUGS[os.environ["WAYSTATION_BUG"]]()
    main()

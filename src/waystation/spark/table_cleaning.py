"""Files that no commit names: what dead attempts left, and how it goes.

A commit removes what other attempts at its batch left beside its own files; they wrote the same
rows, so it lies in the same folders.  ``vacuum`` finds the rest, by age, since a file that
nobody names yet may belong to a batch that runs.
"""

import posixpath
import time
from collections.abc import Sequence
from typing import Final

import pyarrow.fs as pa_fs

from waystation.spark.errors import BadOptionError
from waystation.spark.table_files import WrittenFile
from waystation.spark.table_kinds import existing_kind, kind_called
from waystation.spark.table_location import Location

__all__ = ["remove_leftovers", "vacuum"]

_OURS: Final = "ws-"


def remove_leftovers(
    location: Location, stem: str, files: Sequence[WrittenFile], committed: set[str]
) -> None:
    """Remove files of this batch that its commit does not name."""
    system = location.file_system()
    kept = {_bare(path) for path in committed}
    leftovers = []
    for folder in sorted({posixpath.dirname(file.path) for file in files}):
        selector = pa_fs.FileSelector(folder, allow_not_found=True)
        leftovers += [
            found.path
            for found in system.get_file_info(selector)
            if _bare(found.path).startswith(stem) and _bare(found.path) not in kept
        ]
    location.discard(leftovers)


def _bare(path: str) -> str:
    """A file's name, hidden or not; no two attempts share one."""
    return posixpath.basename(path).removeprefix("_")


def vacuum(
    path: str, *, older_than_hours: float = 24.0, storage_options: dict[str, str] | None = None
) -> list[str]:
    """Remove files that Waystation's sinks wrote, that no snapshot names, and that are old.

    Gives the paths it removed, as they count from the table's root.  Choose more hours than the
    longest micro-batch may take.
    """
    if older_than_hours < 0:
        raise BadOptionError(f"older_than_hours is {older_than_hours}: give 0 or more")
    location = Location.of(path, tuple(sorted((storage_options or {}).items())))
    kind = kind_called(existing_kind(location))
    before = time.time() - older_than_hours * 3600
    # Listed first: a file that is committed meanwhile is then among the needed ones.
    found = location.file_system().get_file_info(
        pa_fs.FileSelector("", recursive=True, allow_not_found=True)
    )
    needed = kind.open_table(location).needed_files()
    orphans = [
        info.path
        for info in found
        if _bare(info.path).startswith(_OURS)
        and info.path.endswith(".parquet")
        and info.path not in needed
        and (info.mtime is None or info.mtime.timestamp() <= before)
    ]
    location.discard(orphans)
    return orphans

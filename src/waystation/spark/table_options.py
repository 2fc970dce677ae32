"""The options of ``waystation.table``, read once and checked before anything is touched.

Spark hands options over with lower-cased names; errors speak of them as the documentation
spells them.  An option that nobody knows is an error, with the nearest name that exists.
"""

import difflib
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from waystation.spark.errors import BadOptionError
from waystation.spark.table_location import Location

__all__ = ["KINDS", "ReadSettings", "WriteSettings", "read_settings", "write_settings"]

KINDS: Final = ("delta", "parquet", "iceberg")
CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
STORAGE: Final = "storage."

_READ: Final = ("path", "format", "version", "includePosition", "files")
_WRITE: Final = (
    "path",
    "format",
    "sinkId",
    "partitionBy",
    "quarantinePath",
    "compression",
    "fileBytes",
    # Spark's own, which it hands on to every sink.
    "checkpointLocation",
    "queryName",
)
_LEAST_FILE_BYTES: Final = 1 << 20


class ReadSettings(NamedTuple):
    """What a reader was asked for."""

    location: Location
    kind: str | None
    version: int | None
    include_position: bool
    files: frozenset[str] | None = None
    """Only these files, below the table's folder."""


class WriteSettings(NamedTuple):
    """What a writer was asked for."""

    location: Location
    kind: str
    sink: str | None
    partition_by: tuple[str, ...]
    quarantine: Location | None
    compression: str
    file_bytes: int


def read_settings(options: Mapping[str, str]) -> ReadSettings:
    """Options of ``spark.read``."""
    given = _known(options, _READ)
    version = given.get("version")
    return ReadSettings(
        location=_location(given, "path", _storage(options)),
        kind=_kind(given["format"]) if "format" in given else None,
        version=None if version is None else _whole("version", version, at_least=0),
        include_position=_switch("includePosition", given.get("includeposition", "false")),
        files=_files(given["files"]) if "files" in given else None,
    )


def write_settings(options: Mapping[str, str]) -> WriteSettings:
    """Options of ``df.write`` and ``df.writeStream``."""
    given = _known(options, _WRITE)
    storage = _storage(options)
    quarantine = (
        _location(given, "quarantinePath", storage) if given.get("quarantinepath") else None
    )
    location = _location(given, "path", storage)
    if quarantine == location:
        raise BadOptionError(
            "option quarantinePath is the same folder as path: give records that do not fit "
            "a table of their own"
        )
    return WriteSettings(
        location=location,
        kind=_kind(given.get("format", "delta")),
        sink=given.get("sinkid") or None,
        partition_by=_names("partitionBy", given.get("partitionby", "")),
        quarantine=quarantine,
        compression=_one_of("compression", given.get("compression", "zstd").lower(), CODECS),
        file_bytes=_whole("fileBytes", given.get("filebytes", str(128 << 20)), _LEAST_FILE_BYTES),
    )


def _known(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    spelling = {name.lower(): name for name in names}
    given = {key.lower(): value for key, value in options.items()}
    for key in given:
        if key in spelling or key.startswith(STORAGE):
            continue
        near = difflib.get_close_matches(key, spelling, n=1)
        hint = f"did you mean {spelling[near[0]]}?" if near else f"known are {', '.join(names)}"
        raise BadOptionError(f"waystation.table has no option {key!r} here: {hint}")
    return given


def _storage(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted(
            (key.lower().removeprefix(STORAGE), value)
            for key, value in options.items()
            if key.lower().startswith(STORAGE)
        )
    )


def _location(
    given: Mapping[str, str], name: str, storage: tuple[tuple[str, str], ...]
) -> Location:
    path = given.get(name.lower(), "").strip()
    if not path:
        raise BadOptionError(f"option {name} is missing: name the table's folder, as in load(path)")
    return Location.of(path, storage)


def _kind(text: str) -> str:
    return _one_of("format", text.lower(), KINDS)


def _one_of(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise BadOptionError(f"option {name} is {text!r}: choose one of {', '.join(choices)}")
    return text


def _whole(name: str, text: str, at_least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = at_least - 1
    if number < at_least:
        raise BadOptionError(f"option {name} is {text!r}: give a whole number, {at_least} or more")
    return number


def _switch(name: str, text: str) -> bool:
    return _one_of(name, text.lower(), ("true", "false")) == "true"


def _files(text: str) -> frozenset[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise BadOptionError(
            f"option files is {text!r}: give a list of names as JSON, as the column _file has them"
        )
    return frozenset(found)


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(set(names)) != len(names):
        raise BadOptionError(f"option {name} is {text!r}: it names a column twice")
    return names

"""Options of tables: what is understood, and how the rest is refused."""

from pathlib import Path

import pytest

from waystation.spark.errors import BadOptionError
from waystation.spark.table_location import Location
from waystation.spark.table_options import read_settings, write_settings


def test_a_path_is_all_that_a_reader_needs(tmp_path: Path) -> None:
    settings = read_settings({"path": str(tmp_path)})

    assert settings == (Location(str(tmp_path)), None, None, False, None)


def test_options_are_found_however_they_are_spelled(tmp_path: Path) -> None:
    settings = write_settings(
        {
            "PATH": str(tmp_path),
            "sinkid": "s",
            "PartitionBy": "topic, date",
            "format": "Parquet",
            "storage.AWS_Region": "eu-1",
            "checkpointlocation": "/c",
        }
    )

    assert (settings.sink, settings.kind, settings.partition_by) == (
        "s",
        "parquet",
        ("topic", "date"),
    )
    assert settings.location.storage == (("aws_region", "eu-1"),)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "path"),
        ({"path": "p", "sinkid": "x", "partitonby": "a"}, "partitionBy"),
        ({"path": "p", "format": "orc"}, "format"),
        ({"path": "p", "partitionby": "a,a"}, "partitionBy"),
        ({"path": "p", "filebytes": "many"}, "fileBytes"),
        ({"path": "p", "filebytes": "5"}, "fileBytes"),
        ({"path": "p", "compression": "rar"}, "compression"),
        ({"path": "p", "quarantinepath": "p"}, "quarantinePath"),
        ({"path": "p", "version": "1"}, "version"),
    ],
)
def test_a_writer_refuses_and_names(options: dict[str, str], named: str) -> None:
    with pytest.raises(BadOptionError, match=named):
        write_settings(options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"path": " "}, "path"),
        ({"path": "p", "version": "newest"}, "version"),
        ({"path": "p", "versoin": "1"}, "version"),
        ({"path": "p", "sinkid": "s"}, "sinkid"),
        ({"path": "p", "includeposition": "perhaps"}, "includePosition"),
        ({"path": "p", "files": "a.parquet"}, "files"),
        ({"path": "p", "files": "[1]"}, "files"),
    ],
)
def test_a_reader_refuses_and_names(options: dict[str, str], named: str) -> None:
    with pytest.raises(BadOptionError, match=named):
        read_settings(options)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("relative", str(Path("relative").absolute())),
        ("s3://bucket/table/", "s3://bucket/table"),
    ],
)
def test_paths_mean_the_same_everywhere(given: str, path: str) -> None:
    assert Location.of(given).path == path

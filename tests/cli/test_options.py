"""What people type as durations."""

from datetime import timedelta

import click
import pytest

from waystation.cli.options import parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT1H", timedelta(hours=1)),
        ("PT1H30M", timedelta(minutes=90)),
        ("P1DT12H", timedelta(hours=36)),
        ("P2W", timedelta(weeks=2)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("1h", timedelta(hours=1)),
        ("90m", timedelta(minutes=90)),
        ("1d12h", timedelta(hours=36)),
        ("45s", timedelta(seconds=45)),
    ],
)
def test_a_duration_is_iso_8601_or_plain(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "soon", "P1M", "P1H", "h", "-1h", "1h1d"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.UsageError, match="PT1H"):
        parse_duration(text)

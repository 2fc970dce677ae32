"""Where a queue begins when nobody has said so: ``share.auto.offset.reset``.

A duration is written as ISO 8601 has it, as in Kafka: ``by_duration:P7D``, ``by_duration:PT1H30M``.
"""

import re
from typing import Final, NamedTuple

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,6})H)?(?:(?P<minutes>\d{1,8})M)?"
    r"(?:(?P<seconds>\d{1,9})(?:\.(?P<fraction>\d{1,9}))?S)?)?"
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class Reset(NamedTuple):
    """At the log's start, at its end, or where messages are younger than ``age_ms``."""

    is_earliest: bool = False
    age_ms: int | None = None


def reset_of(policy: str) -> Reset:
    """What the option means; ``ValueError`` if it is none."""
    if policy.startswith(BY_DURATION):
        return Reset(age_ms=duration_ms(policy.removeprefix(BY_DURATION)))
    return Reset(is_earliest=policy == EARLIEST)


def duration_ms(text: str) -> int:
    """The milliseconds of a duration such as ``PT1H30M``; ``ValueError`` says what is wrong."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"is {text!r}, which is no duration such as P7D, PT1H or PT0.5S")
    whole = sum(int(found[unit] or 0) * ms for unit, ms in _UNITS_MS.items())
    return whole + int((found["fraction"] or "0").ljust(3, "0")[:3])

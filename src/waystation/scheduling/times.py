"""Moments and durations as people write them.

A moment is epoch milliseconds or ISO 8601 with an offset; a duration is milliseconds, ``1h30m``
or ISO 8601's ``PT1H30M``.  What cannot be meant is refused with what can: a ``ValueError`` that
goes on from the name of whatever held the text.  Fractions of a millisecond count upwards, so
that nothing becomes due early.
"""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from waystation.model.offsets import Millis

__all__ = ["duration_of", "instant_of", "iso_text"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DIGITS_MAX: Final = 18
_CHARACTERS_MAX: Final = 64
_UNIT_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)", re.ASCII)
_PARTS: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_ISO: Final = re.compile(
    r"P(?:(?P<w>[0-9]+)W)?(?:(?P<d>[0-9]+)D)?"
    r"(?:T(?:(?P<h>[0-9]+)H)?(?:(?P<m>[0-9]+)M)?(?:(?P<s>[0-9]+(?:[.,][0-9]+)?)S)?)?",
    re.ASCII,
)
_CALENDAR: Final = re.compile(r"P[0-9]+[YM].*", re.ASCII)


def instant_of(text: str) -> Millis:
    """The moment that ``text`` names."""
    if _is_number(text):
        return Millis(int(text))
    try:
        moment = datetime.fromisoformat(text[:_CHARACTERS_MAX])
    except ValueError:
        raise ValueError(
            f"is {_shown(text)}, must be epoch milliseconds or an ISO 8601 time such as "
            "2027-01-31T09:30:00+01:00"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(
            f"is {_shown(text)}, which has no time zone: add Z or an offset such as +01:00"
        )
    return Millis(-((_EPOCH - moment) // _MILLISECOND))


def duration_of(text: str) -> int:
    """The milliseconds that ``text`` names."""
    if _is_number(text):
        return int(text)
    if len(text) <= _CHARACTERS_MAX:
        if _PARTS.fullmatch(text):
            return _ceiling(
                sum(Fraction(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))
            )
        iso = _ISO.fullmatch(text)
        if iso is not None and (named := {u: n for u, n in iso.groupdict().items() if n}):
            return _ceiling(
                sum(Fraction(n.replace(",", ".")) * _UNIT_MS[u] for u, n in named.items())
            )
        if _CALENDAR.fullmatch(text):
            raise ValueError(
                f"is {_shown(text)}: years and months have no fixed length, say it in days"
            )
    raise ValueError(
        f"is {_shown(text)}, must be milliseconds or a duration such as 90s, 1h30m or PT1H30M"
    )


def iso_text(moment: Millis) -> str:
    """The moment for people, in UTC; its number where no calendar reaches."""
    try:
        return (_EPOCH + moment * _MILLISECOND).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(moment)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _ceiling(number: Fraction | int) -> int:
    return -int(-number // 1)


def _shown(text: str) -> str:
    cut = text if len(text) <= _CHARACTERS_MAX else text[:_CHARACTERS_MAX] + "..."
    return repr(cut)

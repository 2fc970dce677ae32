"""Times that come again: five fields as in a crontab, in the time zone of one's choice.

Minute, hour, day of month, month, day of week; ``*``, lists, ranges, steps, names of months and
days, and ``@hourly`` to ``@yearly``.  Where both kinds of days are restricted either suffices, as
cron has always had it.  What happens when clocks change:

1. a job of certain hours happens once a day, whatever the clocks do: a time that clocks skip is
   taken as if they had not been changed yet (02:30 comes at 03:30), one that comes twice counts
   the first time;
2. a job of every hour follows real time: nothing happens at times that are skipped, and what
   comes twice happens twice.
"""

from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from waystation.model.offsets import Millis

__all__ = ["Cron", "zone_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY: Final = timedelta(days=1)
_MINUTE_MS: Final = 60_000
# The 29th of February may be eight years away, around a year like 1900.
_DAYS_MAX: Final = 366 * 9
_CHARACTERS_MAX: Final = 200
_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_WEEKDAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_MONTH_DAYS_MAX: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def zone_of(name: str) -> tzinfo:
    """The time zone of that name; ``ValueError`` says what names look like."""
    try:
        return UTC if name in ("UTC", "Z") else ZoneInfo(name)
    except (OSError, KeyError, ValueError):
        raise ValueError(
            f"is {name[:_CHARACTERS_MAX]!r}, must be a time zone such as UTC or Europe/Berlin"
        ) from None


class Cron:
    """One expression in one time zone; knows no clock."""

    __slots__ = ("_any_day", "_days", "_hours", "_minutes", "_months", "_weekdays", "text", "zone")

    def __init__(self, text: str, zone: str = "UTC") -> None:
        """``ValueError`` says which field is wrong and what it may be."""
        self.text, self.zone = text, zone
        zone_of(zone)
        fields = _fields(text)
        self._minutes = _Field("minute", 0, 59).parse(fields[0])
        self._hours = _Field("hour", 0, 23).parse(fields[1])
        self._days = frozenset(_Field("day of month", 1, 31).parse(fields[2]))
        self._months = frozenset(_Field("month", 1, 12, _MONTHS).parse(fields[3]))
        weekdays = _Field("day of week", 0, 7, _WEEKDAYS).parse(fields[4])
        self._weekdays = frozenset(day % 7 for day in weekdays)
        self._any_day = fields[2].startswith("*"), fields[4].startswith("*")
        earliest = min(self._days)
        if self._any_day[1] and all(earliest > _MONTH_DAYS_MAX[one - 1] for one in self._months):
            raise ValueError(f"is {text!r}, which never comes: no such month has {earliest} days")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cron):
            return NotImplemented
        return (self.text, self.zone) == (other.text, other.zone)

    def __hash__(self) -> int:
        return hash((self.text, self.zone))

    def next_after(self, moment: Millis) -> Millis | None:
        """The first time after ``moment``; ``None`` if the calendar ends before it."""
        zone = zone_of(self.zone)
        try:
            local = (_EPOCH + moment * _MILLISECOND).astimezone(zone)
            # What clocks skipped at the end of a day is due on the next one.
            day = local.date() - _DAY
            for _ in range(_DAYS_MAX):
                if self._is_day(day):
                    following = self._first_after(moment, day, zone)
                    if following is not None:
                        return following
                day += _DAY
        except OverflowError:
            pass
        return None

    def _is_day(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        of_month, of_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        any_of_month, any_of_week = self._any_day
        if any_of_month or any_of_week:
            return of_month and of_week
        return of_month or of_week

    def _first_after(self, moment: Millis, day: date, zone: tzinfo) -> Millis | None:
        """The first time after ``moment`` of those that a day has by the wall clock."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
        if midnight.utcoffset() == (midnight + _DAY).utcoffset():
            start = _millis(midnight)
            minute = self._minute_from(max((moment - start) // _MINUTE_MS + 1, 0))
            return None if minute is None else Millis(start + minute * _MINUTE_MS)
        every_hour = len(self._hours) == 24
        walls = (midnight.replace(hour=h, minute=m) for h in self._hours for m in self._minutes)
        instants = (at for wall in walls for at in _meant(wall, every_hour) if at > moment)
        return min(instants, default=None)

    def _minute_from(self, minute: int) -> int | None:
        """The first minute of a day, at or after ``minute``, that the fields allow."""
        hour, rest = divmod(minute, 60)
        at = bisect_left(self._hours, hour)
        if at < len(self._hours) and self._hours[at] == hour:
            within = bisect_left(self._minutes, rest)
            if within < len(self._minutes):
                return hour * 60 + self._minutes[within]
            at += 1
        return self._hours[at] * 60 + self._minutes[0] if at < len(self._hours) else None


def _meant(wall: datetime, every_hour: bool) -> list[Millis]:
    """When a wall clock shows this, on a day on which clocks are changed."""
    first, second = _millis(wall), _millis(wall.replace(fold=1))
    if not every_hour or first == second:
        return [first]
    return [first, second] if first < second else []


def _millis(moment: datetime) -> Millis:
    return Millis((moment - _EPOCH) // _MILLISECOND)


def _fields(text: str) -> list[str]:
    if len(text) > _CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters, at most {_CHARACTERS_MAX} may be")
    fields = _NICKNAMES.get(text.strip().lower(), text).lower().split()
    if len(fields) != 5:
        raise ValueError(
            f"is {text!r}, which has {len(fields)} fields instead of five: minute, hour, day of "
            "month, month, day of week, such as 0 3 * * mon-fri; or @hourly, @daily, @weekly, "
            "@monthly, @yearly"
        )
    return fields


class _Field:
    """What one field may be."""

    def __init__(self, name: str, least: int, most: int, names: list[str] | None = None) -> None:
        self.name, self.least, self.most = name, least, most
        self._numbers = {word: at + (least > 0) for at, word in enumerate(names or ())}

    def parse(self, text: str) -> list[int]:
        """All values that it stands for, in order."""
        found: set[int] = set()
        for part in text.split(","):
            found.update(self._part(part))
        return sorted(found)

    def _part(self, text: str) -> range:
        span, slash, step_text = text.partition("/")
        step = 1
        if slash:
            if not (step_text.isascii() and step_text.isdigit() and 0 < int(step_text) <= 1_000):
                raise self._wrong(text, "a step is a number from 1 on, such as */15")
            step = int(step_text)
        if span == "*":
            return range(self.least, self.most + 1, step)
        first_text, dash, last_text = span.partition("-")
        first = self._number(first_text)
        last = self._number(last_text) if dash else (self.most if slash else first)
        if last < first:
            raise self._wrong(text, "a range goes from less to more")
        return range(first, last + 1, step)

    def _number(self, text: str) -> int:
        known = self._numbers.get(text)
        if known is not None:
            return known
        if not (text.isascii() and text.isdigit() and self.least <= int(text) <= self.most):
            named = f" or {', '.join(self._numbers)}" if self._numbers else ""
            raise self._wrong(text, f"must be from {self.least} to {self.most}{named}")
        return int(text)

    def _wrong(self, text: str, remedy: str) -> ValueError:
        return ValueError(f"has {text!r} as {self.name}: {remedy}")

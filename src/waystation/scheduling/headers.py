"""What a record of a companion topic says about its time, and what of it is accepted.

Exactly one of three headers, as text:

- ``deliver-at``: epoch milliseconds, or ISO 8601 with an offset;
- ``deliver-after``: milliseconds, ``1h30m`` or ``PT1H30M`` from the record's timestamp on, which
  on companion topics is when the broker took it (``message.timestamp.type=LogAppendTime``);
- ``deliver-cron``: a cron expression, for a message that comes again and again; its time zone is
  ``deliver-zone``, UTC unless told.

1. When a record is due follows from the log alone, so every replica finds the same.
2. Produce refuses what cannot be kept (``check_rows``): a wrong form, a time beyond the horizon or
   too far in the past.  A time that has just passed is due at once: networks take time.
3. What is in the log all the same, from before the topic was a companion, is left alone.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from waystation.model.offsets import Millis
from waystation.records.record import Headers, Row
from waystation.scheduling.cron import Cron, zone_of
from waystation.scheduling.errors import InvalidScheduleError
from waystation.scheduling.settings import ScheduleSettings
from waystation.scheduling.times import duration_of, instant_of, iso_text

__all__ = [
    "AFTER",
    "AT",
    "CRON",
    "ZONE",
    "Timing",
    "check_rows",
    "check_time",
    "plain_due",
    "timing_of",
]

AT: Final = "deliver-at"
AFTER: Final = "deliver-after"
CRON: Final = "deliver-cron"
ZONE: Final = "deliver-zone"

_NAMES: Final = frozenset((AT, AFTER, CRON, ZONE))
_ONE_OF: Final = f"one of the headers {AT}, {AFTER} and {CRON}"
_MILLIS_MAX: Final = 1 << 62
_DIGITS_MAX: Final = 18


class Timing(NamedTuple):
    """When a record is due, at first, and what it follows from then on."""

    due: Millis
    cron: Cron | None = None


def timing_of(headers: Headers, timestamp: Millis) -> Timing:
    """When a record is due that has this timestamp; raises if it does not say."""
    plain = plain_due(headers)
    if plain is not None:
        return Timing(Millis(plain))
    said: dict[str, bytes | None] = {}
    for name, value in headers:
        if name in _NAMES:
            if name in said:
                raise InvalidScheduleError(f"the header {name} is there twice: send it once")
            said[name] = value
    return _timing(said, timestamp)


def plain_due(headers: Headers) -> int | None:
    """When a record is due that says so in milliseconds and nothing else; ``None`` of others.

    HOT: once per record of a companion topic (benchmarks/scheduling/index.py).
    """
    found: bytes | None = None
    for name, value in headers:
        if name in _NAMES:
            if name != AT or found is not None or value is None:
                return None
            found = value
    if found is None or not found.isdigit() or len(found) > _DIGITS_MAX:
        return None
    return int(found)


def check_rows(rows: Sequence[Row], now: Millis, settings: ScheduleSettings) -> int:
    """Refuse a batch for the first record in it that cannot be kept; how many of it recur.

    HOT: once per batch produced to a companion topic; most messages name a time and nothing else.
    """
    latest, earliest = now + settings.schedule_horizon_ms, now - settings.schedule_past_max_ms
    recurring = 0
    for index, (_, timestamp, _, _, headers) in enumerate(rows):
        plain = plain_due(headers)
        if plain is not None and earliest <= plain <= latest:
            continue
        try:
            due, cron = timing_of(headers, Millis(timestamp))
        except InvalidScheduleError as error:
            raise InvalidScheduleError(error.problem, index) from None
        if not earliest <= due <= latest:
            raise InvalidScheduleError(_absurd(due, now, settings), index)
        recurring += cron is not None
    return recurring


def check_time(due: Millis, now: Millis, settings: ScheduleSettings) -> None:
    """Refuse a time for a message that is there already, as ``check_rows`` would."""
    latest, earliest = now + settings.schedule_horizon_ms, now - settings.schedule_past_max_ms
    if not earliest <= due <= latest:
        raise InvalidScheduleError(_absurd(due, now, settings))


def _timing(said: dict[str, bytes | None], timestamp: Millis) -> Timing:
    named = [name for name in (AT, AFTER, CRON) if name in said]
    if len(named) != 1:
        found = " and ".join(named) if named else "none of them"
        raise InvalidScheduleError(f"it needs exactly {_ONE_OF}; found {found}")
    if ZONE in said and CRON not in said:
        raise InvalidScheduleError(
            f"the header {ZONE} is for {CRON}; write the offset into {AT}, such as +01:00"
        )
    header = named[0]
    text = _text(header, said[header])
    try:
        if header == AT:
            return Timing(instant_of(text))
        if header == AFTER:
            return Timing(Millis(min(timestamp + duration_of(text), _MILLIS_MAX)))
    except ValueError as problem:
        raise InvalidScheduleError(f"the header {header} {problem}") from None
    return _recurring(text, said, timestamp)


def _recurring(text: str, said: dict[str, bytes | None], timestamp: Millis) -> Timing:
    zone = _text(ZONE, said[ZONE]) if ZONE in said else "UTC"
    try:
        zone_of(zone)
    except ValueError as problem:
        raise InvalidScheduleError(f"the header {ZONE} {problem}") from None
    try:
        cron = Cron(text, zone)
    except ValueError as problem:
        raise InvalidScheduleError(f"the header {CRON} {problem}") from None
    due = cron.next_after(timestamp)
    if due is None:
        raise InvalidScheduleError(f"the header {CRON} is {text!r}, which never comes")
    return Timing(due, cron)


def _text(header: str, value: bytes | None) -> str:
    if value is None:
        raise InvalidScheduleError(f"the header {header} has no value: give it one, as text")
    try:
        text = value.decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise InvalidScheduleError(
            f"the header {header} is {value[:32]!r}, which is no text: send the digits of a "
            "number, not its bytes"
        )
    return text


def _absurd(due: Millis, now: Millis, settings: ScheduleSettings) -> str:
    return _too_far(due, now, settings) if due > now else _too_long_ago(due, settings)


def _too_far(due: Millis, now: Millis, settings: ScheduleSettings) -> str:
    days = settings.schedule_horizon_ms // 86_400_000
    return (
        f"it is due at {iso_text(due)}, further away than the horizon of {days} days"
        f"{_other_unit(due, now)}; choose an earlier time or raise schedule.horizon.ms"
    )


def _too_long_ago(due: Millis, settings: ScheduleSettings) -> str:
    hint = "; was it meant in seconds? milliseconds are expected" if 0 < due < 10**11 else ""
    return (
        f"it was due at {iso_text(due)}, more than {settings.schedule_past_max_ms} ms ago{hint}; "
        "choose a later time or raise schedule.past.max.ms"
    )


def _other_unit(due: Millis, now: Millis) -> str:
    """Most absurd times are sane ones in another unit."""
    for unit, per_ms in (("microseconds", 1_000), ("nanoseconds", 1_000_000)):
        if now // 2 < due // per_ms < now * 2:
            return f" (was it meant in {unit}? milliseconds are expected)"
    return ""

"""When a message is to be delivered, as programs say it: numbers, texts, datetimes, durations.

A moment is epoch milliseconds, an aware ``datetime``, or ISO 8601 with an offset; a delay is
milliseconds, a ``timedelta``, or text such as ``10m``.  What it becomes is a header of the message
(``docs/schedules.md``), which any other client could have set just as well.
"""

from datetime import datetime, timedelta
from typing import TypedDict

from waystation.model.errors import InvalidRequestError
from waystation.model.offsets import Millis
from waystation.scheduling.cron import Cron, zone_of
from waystation.scheduling.headers import AFTER, AT, CRON, ZONE
from waystation.scheduling.times import duration_of, instant_of

__all__ = ["Delay", "Moment", "Timing", "delay_ms", "moment_ms", "timing_headers"]

Moment = int | str | datetime
Delay = int | str | timedelta


class Timing(TypedDict, total=False):
    """One of the first three at most; ``deliver_zone`` belongs to ``deliver_cron``."""

    deliver_at: Moment | None
    deliver_after: Delay | None
    deliver_cron: str | None
    deliver_zone: str | None


_MILLISECOND = timedelta(milliseconds=1)


def moment_ms(moment: Moment, name: str = "the time") -> Millis:
    """Milliseconds since 1970; a fraction counts upwards, so that nothing comes early."""
    if isinstance(moment, datetime):
        moment = moment.isoformat()
    if isinstance(moment, str):
        try:
            return instant_of(moment.strip())
        except ValueError as problem:
            raise InvalidRequestError(f"{name} {problem}") from None
    return Millis(_number(moment, name))


def delay_ms(delay: Delay, name: str = "the delay") -> int:
    """Milliseconds from now on."""
    if isinstance(delay, timedelta):
        delay = -(-delay // _MILLISECOND)
    if isinstance(delay, str):
        try:
            return duration_of(delay.strip())
        except ValueError as problem:
            raise InvalidRequestError(f"{name} {problem}") from None
    return _number(delay, name)


def timing_headers(
    deliver_at: Moment | None = None,
    deliver_after: Delay | None = None,
    deliver_cron: str | None = None,
    deliver_zone: str | None = None,
) -> tuple[tuple[str, bytes], ...]:
    """The headers that say so; none if nothing is said.

    Mistakes are told here, before anything is sent; the broker checks again.
    """
    said = {AT: deliver_at, AFTER: deliver_after, CRON: deliver_cron}
    named = [name for name, value in said.items() if value is not None]
    if len(named) > 1:
        raise InvalidRequestError(f"a message has one time: give one of {', '.join(named)}")
    if deliver_zone is not None and deliver_cron is None:
        raise InvalidRequestError(f"{ZONE} {deliver_zone!r} is for {CRON}, not for other times")
    if deliver_at is not None:
        return ((AT, b"%d" % moment_ms(deliver_at, AT)),)
    if deliver_after is not None:
        return ((AFTER, b"%d" % delay_ms(deliver_after, AFTER)),)
    return () if deliver_cron is None else _recurring(deliver_cron, deliver_zone)


def _recurring(cron: str, zone: str | None) -> tuple[tuple[str, bytes], ...]:
    try:
        zone_of(zone or "UTC")
    except ValueError as problem:
        raise InvalidRequestError(f"{ZONE} {problem}") from None
    try:
        Cron(cron)
    except ValueError as problem:
        raise InvalidRequestError(f"{CRON} {problem}") from None
    headers = ((CRON, cron.encode()),)
    return headers if zone is None else (*headers, (ZONE, zone.encode()))


def _number(given: object, name: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{name} is an int of milliseconds, text, or of datetime, not {given!r}")
    if given < 0:
        raise InvalidRequestError(f"{name} is {given}, must be 0 or more milliseconds")
    return given

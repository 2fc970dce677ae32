"""The options of schedules."""

from dataclasses import dataclass
from typing import Final

from waystation.model.settings import option

__all__ = ["ScheduleSettings"]

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """How far, how many, how much at once."""

    schedule_horizon_ms: int = option(
        3_653 * _DAY_MS,
        at_least=1_000,
        at_most=36_525 * _DAY_MS,
        live=True,
        doc="Refuse messages that are due later than this from now: ten years unless told, for "
        "what lies further away is nearly always a number in the wrong unit. A longer horizon "
        "costs nothing but that check.",
    )
    schedule_past_max_ms: int = option(
        _DAY_MS,
        at_least=0,
        live=True,
        doc="A message that was due before it came is delivered at once if that is no longer "
        "ago than this, and refused otherwise. A day lets producers catch up after an outage and "
        "still catches seconds that were meant as milliseconds.",
    )
    schedule_recurring_max: int = option(
        10_000,
        at_least=0,
        at_most=1_000_000,
        live=True,
        doc="How many recurring messages one partition may have; each takes about 1 KB of "
        "memory, whoever leads or follows.",
    )
    schedule_retimed_max: int = option(
        100_000,
        at_least=0,
        at_most=10_000_000,
        live=True,
        doc="How many messages of one partition may wait at another time than they came with; "
        "each takes about 200 bytes of memory until it is delivered.",
    )
    schedule_batch_records: int = option(
        1_000,
        at_least=1,
        at_most=100_000,
        live=True,
        doc="How many due messages are delivered in one batch at most. Larger ones cost less "
        "each and make those in front wait for those behind.",
    )
    schedule_near_entries: int = option(
        20_000,
        at_least=1_000,
        live=True,
        doc="How many of a partition's next messages the timing wheel holds in memory at most, "
        "about 250 bytes each; all others are on disk.",
    )
    schedule_buffer_entries: int = option(
        8_192,
        at_least=64,
        at_most=1_000_000,
        live=True,
        doc="How many changes of the index are gathered in memory before they are sorted and "
        "written. More make fewer files and longer pauses.",
    )
    schedule_trust_ms: int = option(
        6 * 3_600_000,
        at_least=1_000,
        live=True,
        doc="For how long the topic that is delivered to is believed to remember the last batch "
        "it was sent. After that, a batch whose arrival is unknown is searched for before it is "
        "sent again. Well below producer.id.expiration.ms of the brokers.",
    )

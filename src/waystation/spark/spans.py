"""What one task reads: a run of offsets of one partition."""

from typing import NamedTuple


class Span(NamedTuple):
    """Offsets from ``start`` up to, not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int

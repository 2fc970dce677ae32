"""How much to do: a little in ``make test``, all of it in ``make soak``."""

import os

SOAKING = os.environ.get("WAYSTATION_SOAK") == "1"


def count(small: int, full: int) -> int:
    """``small`` everyday, ``full`` when soaking."""
    return full if SOAKING else small

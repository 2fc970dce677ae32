"""From an exception to what a response says: the one place where that is decided."""

from typing import NamedTuple

from waystation.model.errors import ErrorCode, WaystationError


class Told(NamedTuple):
    """What the client is told; no error is code 0 and no sentence."""

    code: int
    message: str | None


FINE = Told(ErrorCode.NONE, None)


def told(error: WaystationError | None) -> Told:
    """The code and the sentence for ``error``."""
    return FINE if error is None else Told(error.code, str(error))

"""What the APIs about scheduled messages share: where a message waits, and how many at once."""

from collections.abc import Sized

from waystation.model.errors import InvalidRequestError
from waystation.scheduling.topics import companion_of

_WISHES_MAX = 10_000


def place_of(topic: str, partition: int) -> tuple[str, int]:
    """The partition in which messages for ``topic`` wait; raises if none can."""
    return companion_of(topic), partition


def check_wishes(wishes: Sized) -> None:
    """Refuse more wishes in a request than a broker grants at once."""
    if len(wishes) > _WISHES_MAX:
        raise InvalidRequestError(
            f"{len(wishes)} messages in one request: send at most {_WISHES_MAX}"
        )

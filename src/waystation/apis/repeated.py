"""What a request names more than once, where Kafka then does none of it."""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def repeated(named: Iterable[T]) -> list[T]:
    """Those that come twice or more, each once, in their order."""
    return [one for one, times in Counter(named).items() if times > 1]

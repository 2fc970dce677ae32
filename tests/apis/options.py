"""Which test shows that an option does something."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=Callable[..., None])

shown: set[str] = set()


def shows(*names: str) -> Callable[[T], T]:
    """Mark a test as the proof that options are obeyed."""

    def mark(test: T) -> T:
        shown.update(names)
        return test

    return mark

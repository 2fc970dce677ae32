"""Methods that are handed on without keeping their object alive.

An object whose parts call it back is a circle, which only the collector takes apart, and in a node
that runs for long the collector looks at old objects almost never.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

__all__ = ["weakly"]

P = ParamSpec("P")
R = TypeVar("R")


def weakly(method: Callable[P, R]) -> Callable[P, R]:
    """``method`` of an object that lives for as long as it is called."""
    held = WeakMethod(method)

    def call(*args: P.args, **named: P.kwargs) -> R:
        alive = held()
        assert alive is not None, "a part outlives its whole"
        return alive(*args, **named)

    return call

"""What the data source refuses, in words that Spark shows as they are.

Spark prints a Python error together with the whole way it took through Spark's own workers.
``speaking_plainly`` leaves only the sentence, for errors that are the user's to mend; a mistake
of ours keeps its traceback.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from waystation.model.errors import InvalidConfigError, WaystationError

__all__ = ["BadOptionError", "DataLossError", "speaking_plainly"]

# What Spark itself sets where it is told to hide the tracebacks of functions.
_HIDE = "SPARK_HIDE_TRACEBACK"


class BadOptionError(InvalidConfigError):
    """An option that is unknown, out of bounds or at odds with another."""


class DataLossError(WaystationError):
    """Offsets that should be read are not there; ``failOnDataLoss=false`` passes over them."""

    def __init__(self, topic: str, partition: int | None, why: str) -> None:
        self.topic, self.partition = topic, partition
        self.why = why
        place = f"topic {topic}" if partition is None else f"partition {topic}-{partition}"
        super().__init__(
            f"{place}: {why}. Set the option failOnDataLoss to false to go on with what there "
            "is, or start anew with another checkpoint"
        )

    def __reduce__(self) -> tuple[type["DataLossError"], tuple[str, int | None, str]]:
        return type(self), (self.topic, self.partition, self.why)


@contextmanager
def speaking_plainly() -> Iterator[None]:
    """Whatever goes wrong inside is shown to the user without a traceback, if it is expected.

    Use it with ``with``, or as a decorator of a function that is not a generator.  The process
    ends with the error, so that nobody else's tracebacks are hidden.
    """
    try:
        yield
    except WaystationError as error:
        os.environ[_HIDE] = "1"
        raise error from None

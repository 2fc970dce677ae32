"""What went wrong in a job, said in one line.

Spark wraps an error of a Python worker into an error of a task, of a stage and of a query, each
with its own stack trace.  Somewhere in that text is the sentence that names the culprit;
``readable`` finds it.
"""

import re

from waystation.model.errors import WaystationError

__all__ = ["JobError", "JobFailedError", "readable"]

_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)): (?P<said>.*)$")
# One of our own, with a traceback or without: its sentence is one line.
_OURS = re.compile(r"\b(?:pyspark_)?waystation(?:\.\w+)+Error: (?P<said>.*)")
_TRACEBACK = "Traceback (most recent call last):"
_END_OF_TRACE = re.compile(r"^\s*(?:at [\w.$]+|Caused by: |Driver stacktrace:|JVM stacktrace:)")
# What Spark puts around a sentence: its condition, the query's numbers, SQL's code.
_AROUND = re.compile(
    r"^\[[A-Z0-9_.]+\] |^Query \[[^]]*\] terminated with exception: |( SQLSTATE: \w+)+$"
)


class JobError(WaystationError):
    """What a job was asked for makes no sense, or this machine cannot run it."""


class JobFailedError(WaystationError):
    """A job that ran has ended with an error; the sentence is the cause, not Spark's wrapping."""


def readable(error: BaseException) -> str:
    """The sentence inside Spark's wrapping that names the culprit."""
    if isinstance(error, WaystationError):
        return str(error)
    text = str(error)
    if (ours := _OURS.search(text)) is not None:
        return ours["said"].strip()
    return _python_cause(text) or _first_line(text) or type(error).__name__


def _python_cause(text: str) -> str | None:
    """What the first Python traceback ends with: it is the cause of those that follow."""
    raised = [found for part in text.split(_TRACEBACK)[1:] if (found := _raised(part)) is not None]
    return f"{raised[0][0].rpartition('.')[2]}: {raised[0][1]}" if raised else None


def _raised(traceback: str) -> tuple[str, str] | None:
    """The kind and the sentence of the error that ``traceback`` shows."""
    lines = traceback.splitlines()
    for number, line in enumerate(lines):
        if (found := _RAISED.match(line)) is not None:
            more = _continued(lines[number + 1 :])
            return found["kind"], " ".join([found["said"].strip(), *more]).strip()
    return None


def _continued(lines: list[str]) -> list[str]:
    """The further lines of a sentence, up to what Java adds to it."""
    said: list[str] = []
    for line in lines:
        if not line.strip() or _END_OF_TRACE.match(line):
            break
        said.append(line.strip())
    return said


def _first_line(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    said, bare = "", next((line for line in lines if line), "")
    while said != bare:
        said, bare = bare, _AROUND.sub("", bare)
    return said

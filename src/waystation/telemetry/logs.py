"""Events: a fixed name and facts, for people on a terminal and for machines elsewhere.

``get_logger`` gives an object that costs nothing until an event passes the level: structlog is
imported by the first event that is written.  What the standard library's ``logging`` gets from
others (asyncio, uvicorn) leaves through the same door.
"""

import contextlib
import logging
import sys
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

LogFormat = Literal["auto", "console", "json"]
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Output:
    """Where events go; one per process, because standard error is."""

    def __init__(self) -> None:
        self.threshold = LEVELS["info"]
        self.format: LogFormat = "auto"
        self.stream: IO[str] | None = None
        self._logger: FilteringBoundLogger | None = None

    def set(self, threshold: int, form: LogFormat, stream: IO[str] | None) -> None:
        self.threshold, self.format, self.stream = threshold, form, stream
        self._logger = None

    def write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        """A reader of the log who went away must not take the node along."""
        with contextlib.suppress(OSError, ValueError):
            getattr(self._ready(), level)(event, **facts)

    def _ready(self) -> "FilteringBoundLogger":
        if self._logger is None:
            self._logger = _structured(self.stream or sys.stderr, self.format)
        return self._logger


_output = _Output()


def configure(level: str = "info", form: LogFormat = "auto", stream: IO[str] | None = None) -> None:
    """Say what is written and how: ``auto`` is for people on a terminal, else JSON lines."""
    _output.set(LEVELS[level], form, stream)
    root = logging.getLogger()
    root.handlers = [_Bridge()]
    root.setLevel(max(LEVELS[level], logging.INFO))


def get_logger(area: str, **facts: Any) -> "Events":
    """The events of one part of the node; ``facts`` are repeated with each of them."""
    return Events(area, facts)


class Events:
    """Writes events of one area; ``debug`` per request, ``info`` per change of state."""

    __slots__ = ("_area", "_facts")

    def __init__(self, area: str, facts: dict[str, Any]) -> None:
        self._area = area
        self._facts = facts

    def bind(self, **facts: Any) -> "Events":
        """The same area with more facts to repeat."""
        return Events(self._area, {**self._facts, **facts})

    def debug(self, event: str, **facts: Any) -> None:
        """For whoever looks into one request."""
        if _output.threshold <= 10:
            self._write("debug", event, facts)

    def info(self, event: str, **facts: Any) -> None:
        """A state changed."""
        if _output.threshold <= 20:
            self._write("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """An operator may want to act."""
        if _output.threshold <= 30:
            self._write("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Something is broken; ``exc_info=error`` adds where it happened."""
        self._write("error", event, facts)

    def exception(self, event: str, **facts: Any) -> None:
        """Something is broken, told from within the ``except`` that caught it."""
        self._write("error", event, {**facts, "exc_info": True})

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        _output.write(level, event, {"area": self._area, **self._facts, **facts})


class _Bridge(logging.Handler):
    """Passes on what other libraries tell the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for name in LEVELS if record.levelno <= LEVELS[name]), "error")
        facts: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        message = {"area": record.name, "message": record.getMessage()}
        _output.write(level, "library.log", {**message, **facts})


def _import_structlog() -> None:
    """Import structlog without rich, which it would take along and nobody uses here.

    A broker is ready 33 ms sooner and 4.4 MB smaller for it.
    """
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # what makes an import fail
    try:
        import structlog  # noqa: F401  # for its side effect
    finally:
        del sys.modules["rich"]


def _structured(stream: IO[str], form: LogFormat) -> "FilteringBoundLogger":
    _import_structlog()
    import structlog

    people = form == "console" or (form == "auto" and stream.isatty())
    wrapper = structlog.make_filtering_bound_logger(0)
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(stream),  # type: ignore[arg-type]  # any text stream will do
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("iso", utc=True),
            *(_for_people(stream) if people else _for_machines()),
        ],
        wrapper_class=wrapper,
        cache_logger_on_first_use=True,
    ).bind()
    return logger


def _for_people(stream: IO[str]) -> list["Processor"]:
    import structlog

    traceback = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=traceback)]


def _for_machines() -> list["Processor"]:
    import structlog

    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=str),
    ]

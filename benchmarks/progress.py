"""Where a run is: a bar on a terminal, one line per step elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Steps:
    """Counts steps of a known total and shows the current one."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._bar = Progress(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Steps:
        if sys.stdout.isatty():
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._done += 1
        if sys.stdout.isatty():
            self._bar.update(self._task, completed=self._done - 1, description=text)
            return
        elapsed_s = time.monotonic() - self._began
        print(f"[{self._done}/{self._total}] {elapsed_s:6.0f} s  {text}", flush=True)

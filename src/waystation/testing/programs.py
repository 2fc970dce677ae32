"""Programs that use a cluster and write down what they see, to be killed and started again.

Each life of a program has a name and a history of its own, so that no two values are alike and a
death takes nothing away.  A program that ends by itself is a failure, and says so.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Program"]

_ENDED_WITHIN_S = 90.0
_LOOK_EVERY_S = 0.05


class Program:
    """A writer or a stage: started, killed, started again."""

    def __init__(self, folder: Path, name: str, bootstrap: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._folder, self._bootstrap, self._arguments = folder, bootstrap, arguments
        self._lives = 0
        self._history = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def life(self) -> str:
        """The name of the life that it lives, or lived last."""
        return self._history.stem

    @property
    def is_alive(self) -> bool:
        """Whether it runs; that it ended by itself is a failure."""
        if self._process is None:
            return False
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}: {self._said()}"
        return True

    def start(self) -> None:
        """Begin another life, which has a name and a history of its own."""
        name = f"{self.name}.{self._lives}"
        self._lives += 1
        self._history = self._folder / f"{name}.jsonl"
        command = [sys.executable, *self._arguments]
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, self._bootstrap, self.name, name, str(self._history)],
                stderr=errors,
            )

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """Let it stand still."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, if it stood still."""
        self._signal(signal.SIGCONT)

    def leave(self) -> None:
        """Ask it to end now, as Ctrl-C does."""
        self._end(signal.SIGINT)

    def finish(self) -> None:
        """Ask it to end when everything is done; that it ends well is part of the proof."""
        code = self._end(signal.SIGTERM)
        assert code == 0, f"{self.name} ended with {code}: {self._said()}"

    def _signal(self, what: signal.Signals) -> None:
        assert self._process is not None, f"{self.name} is not running"
        self._process.send_signal(what)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, f"{self.name} is not running"
        try:
            self._await_beginning(process)
            process.send_signal(how)
            return process.wait(_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(
                f"{self.name} still runs {_ENDED_WITHIN_S:.0f} s after {how.name}: {self._said()}"
            ) from None

    def _await_beginning(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until it listens to signals, which is when it writes its first line."""
        deadline_s = time.monotonic() + _ENDED_WITHIN_S
        while not (self._history.exists() and self._history.stat().st_size):
            if time.monotonic() > deadline_s or process.poll() is not None:
                return
            time.sleep(_LOOK_EVERY_S)

    @property
    def _errors(self) -> Path:
        return self._folder / f"{self.name}.err"

    def _said(self) -> str:
        return self._errors.read_text()[-2_000:]
